import pytest

from service.scoring.schema import FeatureSchema, SchemaError
from tests.tiny import CROSSES, FEATURES


def test_a_schema_survives_its_dictionary() -> None:
    schema = FeatureSchema.parse(FEATURES, CROSSES, unit="user_id", item="item_id")
    assert FeatureSchema.from_dict(schema.to_dict()) == schema


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"name": "a", "kind": "numeric", "side": "user", "scaller": "none"}, "did you mean 'scaler'"),
        ({"name": "a", "kind": "numerik", "side": "user"}, "did you mean 'numeric'"),
        ({"name": "a", "kind": "numeric", "side": "left"}, "one of user, context, item"),
        ({"name": "a", "kind": "numeric", "side": "user", "buckets": 5}, "no meaning for kind 'numeric'"),
        ({"name": "a", "kind": "categorical", "side": "user", "dim": 0}, "'dim' must be an integer"),
        ({"name": "a", "kind": "categorical", "side": "user", "dim": True}, "'dim' must be an integer"),
        ({"name": "a", "kind": "numeric", "side": "user", "bins": [3, 2]}, "must rise"),
        ({"name": "a", "kind": "numeric", "side": "user", "bins": "quantil:16"}, "did you mean 'quantile'"),
        ({"name": "a", "kind": "numeric", "side": "user", "bins": "target"}, "must end in how many"),
        ({"name": "a", "kind": "numeric", "side": "user", "bins": "quantile:1"}, "must end in how many"),
        ({"name": "a", "kind": "datetime", "side": "user"}, "'parts' must be a list"),
        ({"name": "a", "kind": "datetime", "side": "user", "parts": ["hours"]}, "did you mean 'hour'"),
        ({"name": "a", "kind": "datetime", "side": "user", "parts": ["hour"], "tz": "Mars/Base"}, "IANA"),
        ({"kind": "numeric", "side": "user"}, "'name' must be a text"),
    ],
)
def test_a_wrong_feature_is_named_with_what_to_do(table: dict[str, object], said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        FeatureSchema.parse([table])


@pytest.mark.parametrize(
    ("cross", "said"),
    [
        ({"of": ["age", "genres"]}, "crossed by its bins"),
        ({"of": ["genres"]}, "at least two"),
        ({"of": ["genres", "genre"]}, "did you mean 'genres'"),
        ({"of": ["genres", "genres"]}, "named twice"),
        ({"of": ["age.bin", "genres"], "bucket": 4}, "did you mean 'buckets'"),
    ],
)
def test_a_wrong_cross_is_named_with_what_to_do(cross: dict[str, object], said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        FeatureSchema.parse(FEATURES, [cross])


def test_two_features_cannot_give_one_column() -> None:
    binned = {"name": "age", "kind": "numeric", "side": "user", "bins": [1]}
    with pytest.raises(SchemaError, match=r"age\.bin"):
        FeatureSchema.parse([binned, {"name": "age.bin", "kind": "categorical", "side": "user"}])
