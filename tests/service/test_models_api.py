"""Versions over HTTP: listed, loaded, unloaded, refused, on a real worker."""

import json
import shutil

import pytest

from tests.service.workplace import listing, with_two_versions


@with_two_versions
async def test_the_listing_has_what_the_contract_names(one):
    answer = await one.get("/models")
    body = answer.json()
    assert answer.headers["etag"] == '"1"'
    assert set(body) == {"models", "weights", "coverage", "default", "shadow", "experiment", "epoch", "replicas"}
    assert [model["version"] for model in body["models"]] == ["v1", "v2", "v3"]
    assert set(body["models"][0]) == {"version", "state", "weight", "share", "error", "metrics", "created"}
    assert [(m["state"], m["weight"], m["share"]) for m in body["models"]] == [
        ("ready", 90, 0.9),
        ("ready", 10, 0.1),
        ("available", 0, 0.0),
    ]
    assert (body["coverage"], body["default"], body["shadow"], body["experiment"]) == (1.0, "v1", None, "default")
    assert [(replica["id"], replica["epoch"]) for replica in body["replicas"]] == [("local", 1)]


@with_two_versions
async def test_one_version_is_shown_with_its_feature_schema(one):
    body = (await one.get("/models/v3")).json()
    assert body["state"] == "available"
    assert [feature["name"] for feature in body["schema"]["features"]][:2] == ["user_id", "age"]


@with_two_versions
async def test_an_unknown_version_is_404_with_the_nearest(one):
    answer = await one.get("/models/v33")
    assert answer.status_code == 404
    assert "v3" in answer.json()["detail"]


@with_two_versions
async def test_a_load_is_at_weight_0_and_idempotent(one):
    first, again = await one.put("/models/v3"), await one.put("/models/v3")
    assert (first.status_code, again.status_code) == (200, 200)
    model = (await one.get("/models/v3")).json()
    assert (model["state"], model["weight"]) == ("ready", 0)
    assert (await one.get("/models")).json()["epoch"] == 1


@with_two_versions
async def test_a_version_that_does_not_exist_is_404(one):
    assert (await one.put("/models/v9")).status_code == 404
    assert (await one.client.delete("/models/v9")).status_code == 404


@pytest.mark.parametrize(
    "name",
    [
        "http://127.0.0.1:1/x",
        "http%3A%2F%2F127.0.0.1%3A1%2Fx",
        "file:///etc/hostname",
        "%2F%2Fhost%2Fshare",
        "%5C%5Chost%5Cshare",
        "..%2Fv1",
        ".hidden",
        "weights",
        "v1%00",
        "a" * 65,
    ],
)
def test_se03_what_is_no_name_is_422_and_nothing_is_touched(artifacts, tmp_path, name):
    async def check(one):
        before = await listing(one)
        answer = await one.client.put(f"/models/{name}")
        assert answer.status_code == 422, answer.text
        assert await listing(one) == before

    with_two_versions(check)(artifacts, f"sqlite:///{tmp_path}/state.db")


@with_two_versions
async def test_se03_a_load_takes_no_address_in_its_body(one):
    answer = await one.put("/models/v3", {"url": "http://127.0.0.1:1/x"})
    assert (answer.status_code, answer.json()["detail"][0]["loc"]) == (422, ["body", "url"])


@with_two_versions
async def test_a_version_in_use_is_not_unloaded(one):
    await one.weights({"v2": 1})
    default, heavy = await one.client.delete("/models/v1"), await one.client.delete("/models/v2")
    assert (default.status_code, heavy.status_code) == (409, 409)
    assert "default" in default.json()["detail"]
    assert "weight" in heavy.json()["detail"]


@with_two_versions
async def test_an_unloaded_version_is_available_and_answers_no_override(one):
    await one.weights({"v1": 1})
    assert (await one.client.delete("/models/v2")).json() == {"version": "v2", "state": "available"}
    assert (await one.states())["v2"] == "available"
    answer = await one.client.post("/predict", json={"instances": [{}], "version": "v2"})
    assert answer.status_code == 409


def test_each_change_of_weights_or_versions_is_logged(artifacts, tmp_path, caplog):
    caplog.set_level("INFO", logger="twinrank")

    async def check(one):
        await one.weights({"v1": 1})
        await one.weights({"v1": 1})
        await one.put("/models/v3")
        await one.client.delete("/models/v2")

    with_two_versions(check)(artifacts, f"sqlite:///{tmp_path}/state.db")
    assert caplog.messages.count("weights") == 1
    assert {"load asked for", "unloaded"} <= set(caplog.messages)
    [change] = [record for record in caplog.records if record.message == "weights"]
    assert (change.fields["was"]["weights"], change.fields["now"]["weights"]) == ({"v1": 90, "v2": 10}, {"v1": 1})


def test_ld01_a_version_of_another_scikit_learn_is_422_with_both_versions(artifacts, tmp_path):
    manifest = json.loads((artifacts / "v3" / "manifest.json").read_text())
    manifest["libraries"]["scikit-learn"] = "0.24.2"
    (artifacts / "v3" / "manifest.json").write_text(json.dumps(manifest))

    async def check(one):
        answer = await one.put("/models/v3")
        assert answer.status_code == 422
        assert "0.24.2" in answer.json()["detail"]
        assert (await one.predict()).status_code == 200

    with_two_versions(check)(artifacts, f"sqlite:///{tmp_path}/state.db")


def cut(path):
    path.write_bytes(path.read_bytes()[:-200])


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model.pt", cut),
        ("model.pt", lambda path: path.write_bytes(b"")),
        ("scalers.joblib", lambda path: path.unlink()),
        ("exam.json", lambda path: path.write_text("{}")),
    ],
)
def test_ld02_a_broken_version_is_422_and_names_the_file(artifacts, tmp_path, name, damage):
    damage(artifacts / "v3" / name)

    async def check(one):
        before = await listing(one)
        answer = await one.put("/models/v3")
        assert answer.status_code == 422
        assert name in answer.json()["detail"]
        assert (await one.get("/readyz")).status_code == 200
        assert (await one.weights({"v3": 1})).status_code == 409
        assert json.loads(before)["weights"] == (await one.get("/models")).json()["weights"]

    with_two_versions(check)(artifacts, f"sqlite:///{tmp_path}/state.db")


def test_a_version_published_later_is_listed_and_loads(artifacts, tmp_path, published):
    shutil.rmtree(artifacts / "v3")

    async def check(one):
        assert (await one.put("/models/v3")).status_code == 404
        shutil.copytree(published / "v3", artifacts / "v3")
        assert (await one.put("/models/v3")).status_code == 200

    with_two_versions(check)(artifacts, f"sqlite:///{tmp_path}/state.db")


def test_folders_of_work_in_progress_are_never_listed(artifacts, tmp_path, published):
    shutil.copytree(published / "v3", artifacts / ".v4-x")
    shutil.copytree(published / "v3", artifacts / "weights")

    async def check(one):
        assert list(await one.states()) == ["v1", "v2", "v3"]

    with_two_versions(check)(artifacts, f"sqlite:///{tmp_path}/state.db")


@with_two_versions
async def test_the_docs_describe_the_bodies_that_are_parsed_by_hand(one):
    paths = (await one.get("/openapi.json")).json()["paths"]
    body = paths["/models/weights"]["put"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(body["properties"]) == {"weights", "coverage", "default", "shadow", "experiment", "comment"}
    assert "requestBody" in paths["/models/weights/rollback"]["post"]
    catalog = paths["/models/{version}/catalog"]["put"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(catalog["properties"]) == {"revision"}
    assert (await one.get("/docs")).status_code == 200
