from pathlib import Path

from service.scoring.known import KnownNames
from tests.tiny import publish_tiny, tiny_encoder


def test_names_of_every_version_are_known_with_their_sides(tmp_path: Path) -> None:
    publish_tiny(tmp_path, "v1")
    other = tiny_encoder(features=[{"name": "age", "kind": "categorical", "side": "context"}], crosses=[])
    publish_tiny(tmp_path, "v2", encoder=other)
    known = KnownNames.scan(tmp_path)
    assert known.side("age") == {"user", "context"}
    assert known.side("item_id") == {"item"}
    assert known.side("agee") == frozenset()


def test_a_damaged_version_hides_no_other(tmp_path: Path) -> None:
    publish_tiny(tmp_path, "v1")
    (publish_tiny(tmp_path, "v2") / "manifest.json").write_text("{")
    assert KnownNames.scan(tmp_path).side("age") == {"user"}
