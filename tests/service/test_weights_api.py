"""The split over HTTP: statuses, bodies and headers of the contract, on a real worker."""

import pytest

from tests.service.workplace import listing, with_two_versions

JSON = {"content-type": "application/json"}


@with_two_versions
async def test_a_switch_answers_the_new_document_its_tag_and_what_moves(one):
    answer = await one.weights({"v1": 50, "v2": 50}, coverage=0.5, experiment="home-feed-7", comment="ramp")
    body = answer.json()
    assert (answer.status_code, answer.headers["etag"], body["epoch"]) == (200, '"2"', 2)
    assert (body["weights"], body["coverage"], body["experiment"]) == ({"v1": 50, "v2": 50}, 0.5, "home-feed-7")
    assert 0 < body["moved_fraction"] < 1


@with_two_versions
async def test_the_same_document_again_is_200_and_no_new_epoch(one):
    answer = await one.weights({"v1": 90, "v2": 10}, comment="another word")
    assert (answer.status_code, answer.json()["epoch"], answer.json()["moved_fraction"]) == (200, 1, 0)


@with_two_versions
async def test_a_dry_run_tells_and_changes_nothing(one):
    before = await listing(one)
    body = (await one.weights({"v2": 1}, "?dry_run=true")).json()
    assert (body["moved_fraction"], body["epoch"], body["dry_run"]) == (pytest.approx(0.9), 1, True)
    assert await listing(one) == before


@with_two_versions
async def test_a_dry_run_says_that_another_experiment_redraws(one):
    body = (await one.weights({"v1": 90, "v2": 10}, "?dry_run=true", experiment="other")).json()
    assert "redrawn" in body["warnings"][0]


@with_two_versions
async def test_a_misspelt_parameter_does_not_make_the_change(one):
    before = await listing(one)
    answer = await one.weights({"v2": 1}, "?dryrun=true")
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["query", "dryrun"]
    assert "dry_run" in answer.json()["detail"][0]["msg"]
    assert await listing(one) == before


@pytest.mark.parametrize("sent", ['"1"', '"7", "1"', "*", ' "1" '])
def test_if_match_of_the_current_epoch_is_let_through(artifacts, tmp_path, sent):
    async def check(one):
        assert (await one.weights({"v2": 1}, headers={"If-Match": sent})).status_code == 200

    with_two_versions(check)(artifacts, f"sqlite:///{tmp_path}/state.db")


@pytest.mark.parametrize("sent", ['"2"', 'W/"1"', "1", '"01"', '"2", W/"1"', ""])
def test_if_match_of_anything_else_is_412_with_the_document(artifacts, tmp_path, sent):
    async def check(one):
        answer = await one.weights({"v2": 1}, headers={"If-Match": sent})
        assert (answer.status_code, answer.headers["etag"]) == (412, '"1"')
        assert (answer.json()["epoch"], answer.json()["weights"]) == (1, {"v1": 90, "v2": 10})

    with_two_versions(check)(artifacts, f"sqlite:///{tmp_path}/state.db")


@with_two_versions
async def test_a_rollback_honours_if_match_too(one):
    answer = await one.client.post("/models/weights/rollback", headers={"If-Match": '"9"'})
    assert answer.status_code == 412


BAD = (
    ('{"weights":{}}', 422, ["body", "weights"]),
    ('{"weights":{"v1":-0.1,"v2":1.1}}', 422, ["body", "weights", "v1"]),
    ('{"weights":{"v1":0.5,"v2":NaN}}', 422, ["body", "weights", "v2"]),
    ('{"weights":{"v1":0.5,"v2":Infinity}}', 422, ["body", "weights", "v2"]),
    ('{"weights":{"v1":0.5,"v2":1e999}}', 422, ["body", "weights", "v2"]),
    ('{"weights":{"v1":"0.5","v2":0.5}}', 422, ["body", "weights", "v1"]),
    ('{"weights":{"v1":true,"v2":0}}', 422, ["body", "weights", "v1"]),
    ('{"weights":{"v1":null}}', 422, ["body", "weights", "v1"]),
    ('{"weights":{"v1":0,"v2":0}}', 422, ["body", "weights"]),
    ('{"weights":{"v1":1e308,"v2":1e308}}', 422, ["body", "weights"]),
    ('{"weights":{"v1":1e-320,"v2":1e300}}', 422, ["body", "weights"]),
    ('{"weights":{"v1":1' + "0" * 400 + "}}", 422, ["body", "weights", "v1"]),
    ('{"weights":[["v1",1]]}', 422, ["body", "weights"]),
    ('{"weights":{"http://127.0.0.1:1/x":1}}', 422, ["body", "weights", "http://127.0.0.1:1/x"]),
    ('{"weights":{"../v1":1}}', 422, ["body", "weights", "../v1"]),
    ('{"weights":{"":1}}', 422, ["body", "weights", ""]),
    ('{"coverage":1}', 422, ["body", "weights"]),
    ('{"weights":{"v1":1},"coverage":1.5}', 422, ["body", "coverage"]),
    ('{"weights":{"v1":1},"coverage":null}', 422, ["body", "coverage"]),
    ('{"weights":{"v1":1},"coverage":true}', 422, ["body", "coverage"]),
    ('{"weights":{"v1":1},"default":7}', 422, ["body", "default"]),
    ('{"weights":{"v1":1},"experiment":"a b"}', 422, ["body", "experiment"]),
    ('{"weights":{"v1":1},"experiment":""}', 422, ["body", "experiment"]),
    ('{"weights":{"v1":1},"comment":7}', 422, ["body", "comment"]),
    ('{"weights":{"v1":1},"shadow":7}', 422, ["body", "shadow"]),
    ('{"weights":{"v1":1},"shadow":{"version":"v2"}}', 422, ["body", "shadow", "fraction"]),
    ('{"weights":{"v1":1},"shadow":{"version":"../v2","fraction":1}}', 422, ["body", "shadow", "version"]),
    ('{"weights":{"v1":1},"shadow":{"version":"v2","fraction":0}}', 422, ["body", "shadow", "fraction"]),
    ('{"weights":{"v1":1},"shadow":{"version":"v2","fraction":1.5}}', 422, ["body", "shadow", "fraction"]),
    ('{"weights":{"v1":1},"shadow":{"version":"v2","fraction":true}}', 422, ["body", "shadow", "fraction"]),
    ('{"weights":{"v1":1},"shadow":{"version":"v2","fraction":NaN}}', 422, ["body", "shadow", "fraction"]),
    ('{"weights":{"v1":1},"shadow":{"version":"v2","fraction":1,"salt":1}}', 422, ["body", "shadow", "salt"]),
    ('{"weights":{"v1":1},"shadow":{"version":"nope","fraction":0.1}}', 404, None),
    ('{"weights":{"v1":1},"shadow":{"version":"v3","fraction":0.1}}', 409, None),
    ('{"weights":{"v1":1},"salt":"x"}', 422, ["body", "salt"]),
    ("[]", 422, ["body"]),
    ("null", 422, ["body"]),
    ("", 422, ["body", "weights"]),
    ('{"weights":{"nope":1}}', 404, None),
    ('{"weights":{"v1":1},"default":"nope"}', 404, None),
    ('{"weights":{"v1":1,"v3":1}}', 409, None),
    ('{"weights":{"v1":1},"default":"v3"}', 409, None),
    ('{"weights":{"v1":1}', 400, None),
    ('\ufeff{"weights":{"v1":1}}', 400, None),
    ("[" * 100_000, 400, None),
)


@with_two_versions
async def test_ab03_bad_documents_are_refused_and_leave_the_listing_as_it_was(one):
    before = await listing(one)
    for body, status, loc in BAD:
        answer = await one.client.put("/models/weights", content=body.encode(), headers=JSON)
        assert answer.status_code == status, (body[:80], answer.text)
        if loc is not None:
            assert answer.json()["detail"][0]["loc"] == loc, body[:80]
        assert await listing(one) == before, body[:80]


@with_two_versions
async def test_a_body_that_is_not_utf8_is_400(one):
    answer = await one.client.put("/models/weights", content=b'{"weights":{"v\xff":1}}', headers=JSON)
    assert answer.status_code == 400


@with_two_versions
async def test_a_shadow_of_null_is_what_there_is(one):
    assert (await one.weights({"v1": 1}, shadow=None)).status_code == 200


@with_two_versions
async def test_the_nearest_field_is_named(one):
    answer = await one.put("/models/weights", {"weights": {"v1": 1}, "experimnt": "x"})
    assert "experiment" in answer.json()["detail"][0]["msg"]


@with_two_versions
async def test_ab03_sums_other_than_one_are_normalised(one):
    assert (await one.weights({"v1": 0.7, "v2": 0.3})).status_code == 200
    await one.put("/models/v3")
    three = (await one.weights({"v1": 0.7, "v2": 0.2, "v3": 0.1})).json()
    assert three["weights"] == {"v1": 0.7, "v2": 0.2, "v3": 0.1}
    body = (await one.weights({"v1": 0.5, "v2": 0.4})).json()
    assert body["weights"] == {"v1": 0.5, "v2": 0.4}
    assert body["shares"] == pytest.approx({"v1": 5 / 9, "v2": 4 / 9})


@with_two_versions
async def test_the_history_tells_who_when_from_to_and_why(one):
    await one.weights({"v2": 1}, comment="try v2")
    newest, first = (await one.get("/models/weights/history")).json()["history"]
    assert (newest["epoch"], newest["who"], newest["comment"]) == (2, "local", "try v2")
    assert (newest["from"]["weights"], newest["to"]["weights"]) == ({"v1": 90, "v2": 10}, {"v2": 1})
    assert newest["when"] >= first["when"]
    assert (first["who"], first["from"]) == ("start", None)


@with_two_versions
async def test_rollbacks_go_further_back_each_time_and_an_epoch_can_be_picked(one):
    await one.weights({"v2": 1})
    await one.weights({"v1": 1, "v2": 1})
    rolled = [(await one.client.post("/models/weights/rollback")).json() for _ in range(2)]
    assert [(body["epoch"], body["weights"]) for body in rolled] == [(4, {"v2": 1}), (5, {"v1": 90, "v2": 10})]
    assert (await one.client.post("/models/weights/rollback")).status_code == 409
    picked = await one.client.post("/models/weights/rollback", json={"epoch": 3})
    assert picked.json()["weights"] == {"v1": 1, "v2": 1}


@pytest.mark.parametrize("epoch", [0, -1, 1.5, "1", True, 2**70])
def test_a_rollback_to_what_is_no_epoch_is_422(artifacts, tmp_path, epoch):
    async def check(one):
        assert (await one.client.post("/models/weights/rollback", json={"epoch": epoch})).status_code == 422

    with_two_versions(check)(artifacts, f"sqlite:///{tmp_path}/state.db")


@with_two_versions
async def test_a_rollback_to_an_epoch_that_never_was_is_404(one):
    assert (await one.client.post("/models/weights/rollback", json={"epoch": 99})).status_code == 404


@with_two_versions
async def test_a_rollback_to_a_version_that_is_not_ready_is_409(one):
    await one.weights({"v1": 1})
    await one.client.delete("/models/v2")
    assert (await one.client.post("/models/weights/rollback")).status_code == 409
