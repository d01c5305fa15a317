"""The contract's tables, held against a real service of two workers."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest

from tests.e2e.server import Service

ROW = {"instances": [{"user_id": "u1", "age": 33, "price": 3, "genres": ["a"]}]}
RANK = {"user": {"user_id": "u1", "age": 33}, "context": {"shown_at": 1_700_000_000}, "candidates": ["i1", "i2", "i3"]}


def test_the_row_form_answers_one_probability_an_instance(service: Service) -> None:
    response = service.predict({"instances": [{"age": n} for n in range(5)]})
    body = response.json()
    assert response.status_code == 200
    assert len(body["predictions"]) == 5
    assert all(0 <= score <= 1 for score in body["predictions"])
    assert set(body) == {"prediction_id", "model_version", "assignment", "predictions"}


def test_the_ranking_form_answers_one_probability_a_candidate(service: Service) -> None:
    body = service.predict({**RANK, "candidates": ["i1", "new", {"item_id": "i2", "price": 9}, "i1"]}).json()
    assert len(body["predictions"]) == 4
    assert body["unknown_items"] == 1


def test_top_k_ranks_best_first_with_ties_in_request_order(service: Service) -> None:
    scored = service.predict({**RANK, "version": "v3", "candidates": ["i5", "i1", "i2", "i1"]}).json()["predictions"]
    ranked = service.predict({**RANK, "version": "v3", "candidates": ["i5", "i1", "i2", "i1"], "top_k": 3}).json()
    order = sorted(range(4), key=lambda n: -scored[n])[:3]
    assert [one["item_id"] for one in ranked["ranking"]] == [["i5", "i1", "i2", "i1"][n] for n in order]
    assert [one["score"] for one in ranked["ranking"]] == pytest.approx([scored[n] for n in order], abs=1e-6)
    assert "predictions" not in ranked


def test_top_k_beyond_the_candidates_gives_all_and_echoes_ids_as_sent(service: Service) -> None:
    body = service.predict({**RANK, "candidates": [7, "i1", "7"], "top_k": 99}).json()
    assert [one["item_id"] for one in body["ranking"]] == [7, "i1", "7"]


def test_an_answer_tells_its_version_assignment_and_timing(service: Service) -> None:
    response = service.predict(ROW, headers={"X-Request-Id": "abc-1"})
    body = response.json()
    assert response.headers["x-request-id"] == "abc-1"
    assert response.headers["x-model-version"] == body["model_version"]
    assert all(part in response.headers["server-timing"] for part in ("parse", "queue", "model"))
    assert body["assignment"] == {"experiment": "default", "reason": "split", "epoch": 1, "propensity": 0.5}


def test_a_request_id_is_made_where_none_is_sent_and_ids_of_predictions_are_unique(service: Service) -> None:
    answers = [service.predict(ROW) for _ in range(20)]
    assert len({answer.headers["x-request-id"] for answer in answers}) == 20
    assert len({answer.json()["prediction_id"] for answer in answers}) == 20


@pytest.mark.parametrize(
    ("extra", "headers"),
    [
        ({"unit_id": 42}, {}),
        ({"unit_id": "42"}, {}),
        ({}, {"X-Unit-Id": "42"}),
        ({"unit_id": "42"}, {"X-Unit-Id": "7"}),
    ],
)
def test_ab01_one_unit_has_one_version_however_it_is_sent(
    service: Service, extra: dict[str, Any], headers: dict[str, str]
) -> None:
    wanted = service.predict({"instances": [{"user_id": 42}]}).json()["model_version"]
    body = {"instances": [{"age": 1}], **extra}
    assert service.predict(body, headers=headers).json()["model_version"] == wanted


def test_the_unit_defaults_to_the_users_unit_feature(service: Service) -> None:
    for user in range(20):
        by_row = service.predict({"instances": [{"user_id": f"x{user}"}]}).json()["model_version"]
        by_rank = service.predict({"user": {"user_id": f"x{user}"}, "candidates": ["i1"]}).json()["model_version"]
        assert by_row == by_rank


def test_a_request_without_a_unit_is_drawn_at_random(service: Service) -> None:
    answers = [service.predict({"instances": [{"age": 3}], "unit_id": ""}).json() for _ in range(40)]
    assert {answer["assignment"]["reason"] for answer in answers} == {"no_unit"}
    assert {answer["assignment"]["propensity"] for answer in answers} == {None}
    assert {answer["model_version"] for answer in answers} == {"v1", "v2"}


@pytest.mark.parametrize("headers", [{}, {"X-Model-Version": "v3"}])
def test_a_version_can_be_asked_for(service: Service, headers: dict[str, str]) -> None:
    body = ROW if headers else {**ROW, "version": "v3"}
    answer = service.predict(body, headers=headers).json()
    assert answer["model_version"] == "v3"
    assert answer["assignment"]["reason"] == "override"
    assert answer["assignment"]["propensity"] is None


JSON = {"content-type": "application/json"}
REFUSED: list[tuple[str, Any, dict[str, str], int]] = [
    ("not JSON", b"{", JSON, 400),
    ("empty body", b"", JSON, 400),
    ("a NaN literal", b'{"instances": [{"age": NaN}]}', JSON, 400),
    ("an Infinity literal", b'{"instances": [{"age": -Infinity}]}', JSON, 400),
    ("not UTF-8", b'{"instances": [{"user_id": "\xff"}]}', JSON, 400),
    ("nested too deep", b"[" * 100_000 + b"]" * 100_000, JSON, 400),
    ("a list", b"[]", JSON, 422),
    ("neither form", {}, JSON, 422),
    ("both forms", {**ROW, **RANK}, JSON, 422),
    ("no instances", {"instances": []}, JSON, 422),
    ("no candidates", {"user": {}, "candidates": []}, JSON, 422),
    ("no user", {"candidates": ["i1"]}, JSON, 422),
    ("instances of another type", {"instances": "abc"}, JSON, 422),
    ("an instance of another type", {"instances": [1]}, JSON, 422),
    ("candidates of another type", {"user": {}, "candidates": "i1"}, JSON, 422),
    ("top_k of nothing", {**RANK, "top_k": 0}, JSON, 422),
    ("top_k as text", {**RANK, "top_k": "3"}, JSON, 422),
    ("top_k as a boolean", {**RANK, "top_k": True}, JSON, 422),
    ("a unit that is a list", {**ROW, "unit_id": ["u1"]}, JSON, 422),
    ("a unit that is a boolean", {**ROW, "unit_id": True}, JSON, 422),
    ("an unknown field", {**ROW, "untit_id": "u1"}, JSON, 422),
    ("an unknown feature", {"instances": [{"agee": 3}]}, JSON, 422),
    ("a feature of another side", {"user": {"price": 3}, "candidates": ["i1"]}, JSON, 422),
    ("a number as text", {"instances": [{"age": "3.5"}]}, JSON, 422),
    ("a number as a boolean", {"instances": [{"age": False}]}, JSON, 422),
    ("a category as a boolean", {"instances": [{"user_id": True}]}, JSON, 422),
    ("a category as a fraction", {"instances": [{"user_id": 1.5}]}, JSON, 422),
    ("a whole float as a category", {"instances": [{"user_id": 1.0}], "unit_id": "a"}, JSON, 422),
    ("a list as a text", {"instances": [{"genres": "abc"}]}, JSON, 422),
    ("a number beyond float64", b'{"instances": [{"age": 1e400}]}', JSON, 400),
    ("milliseconds", {"instances": [{"shown_at": 1_700_000_000_000}]}, JSON, 422),
    ("explain by a version that cannot", {**ROW, "explain": True}, JSON, 422),
    ("too many rows", {"instances": [{}] * 4097}, JSON, 413),
    ("too long a body", b" " * (8 * 1024 * 1024 + 1), JSON, 413),
    ("another content type", json.dumps(ROW).encode(), {"content-type": "text/plain"}, 415),
    ("a content encoding", json.dumps(ROW).encode(), {**JSON, "content-encoding": "gzip"}, 415),
    ("an unknown version", {**ROW, "version": "v9"}, JSON, 404),
    ("a version that is a path", {**ROW, "version": "../v1"}, JSON, 422),
    ("a timeout that is no number", ROW, {**JSON, "x-request-timeout-ms": "soon"}, 422),
]


@pytest.mark.parametrize(
    ("body", "headers", "status"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_bad_input_gets_its_status_and_a_strict_json_body(
    service: Service, body: Any, headers: dict[str, str], status: int
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = httpx.post(service.url + "/predict", content=content, headers=headers, timeout=30)
    assert response.status_code == status
    detail = json.loads(response.content, parse_constant=lambda name: pytest.fail(f"{name} in the body"))["detail"]
    if status == 422:
        assert detail
        assert all({"loc", "msg", "type"} <= set(fault) for fault in detail)
    assert "Traceback" not in response.text
    assert service.predict(ROW).status_code == 200


def test_every_fault_of_a_request_is_listed_and_the_nearest_name_given(service: Service) -> None:
    faults = service.predict({"instances": [{"agee": 1, "price": "x"}, {"genres": 3}]}).json()["detail"]
    assert {tuple(fault["loc"][-3:]) for fault in faults} >= {
        ("instances", 0, "agee"),
        ("instances", 0, "price"),
        ("instances", 1, "genres"),
    }
    assert "age" in next(fault["msg"] for fault in faults if "agee" in fault["loc"])


def test_at_most_twenty_faults_are_listed(service: Service) -> None:
    faults = service.predict({"instances": [{"price": "x"}] * 50}).json()["detail"]
    assert len(faults) == 20


def test_the_last_of_repeated_keys_counts_for_assignment_and_scoring_alike(service: Service) -> None:
    def version(unit: str) -> str:
        return str(service.predict({"instances": [{"user_id": unit}]}).json()["model_version"])

    other = next(unit for unit in (f"d{n}" for n in range(50)) if version(unit) != version("u1"))
    body = f'{{"instances": [{{"user_id": "u1", "user_id": "{other}"}}]}}'
    answer = httpx.post(service.url + "/predict", content=body, headers=JSON).json()
    assert answer["model_version"] == version(other)


def test_json_is_assumed_where_no_content_type_is_sent(service: Service) -> None:
    request = httpx.Request("POST", service.url + "/predict", content=json.dumps(ROW))
    assert "content-type" not in request.headers
    with httpx.Client() as client:
        assert client.send(request).status_code == 200


def test_a_chunked_body_over_the_limit_is_refused(service: Service) -> None:
    chunks = (b" " * 65536 for _ in range(200))
    try:
        response = httpx.post(service.url + "/predict", content=chunks, headers=JSON, timeout=30)
        assert response.status_code == 413
    except httpx.TransportError:
        pass  # the server may close before the client has sent it all
    assert service.predict(ROW).status_code == 200


def test_a_deadline_that_has_passed_is_504(service: Service) -> None:
    body = {"instances": [{"genres": ["a", "b"], "age": n} for n in range(4000)]}
    assert service.predict(body, headers={"X-Request-Timeout-Ms": "1"}).status_code == 504


def test_unloaded_versions_answer_409_and_loading_them_makes_them_ready(service: Service) -> None:
    assert httpx.delete(service.url + "/models/v3", timeout=30).status_code in (200, 204)
    assert service.predict({**ROW, "version": "v3"}).status_code == 409
    assert service.put("/models/v3").status_code == 200
    assert all(service.predict({**ROW, "version": "v3"}).status_code == 200 for _ in range(20))


def test_models_lists_versions_weights_and_replicas(service: Service) -> None:
    response = httpx.get(service.url + "/models")
    body = response.json()
    assert response.headers["etag"] == f'"{body["epoch"]}"'
    assert [model["version"] for model in body["models"]] == ["v1", "v2", "v3"]
    assert {model["state"] for model in body["models"]} == {"ready"}
    assert {"weight", "share", "error", "metrics", "created"} <= set(body["models"][0])
    assert {"weights", "coverage", "default", "shadow", "experiment", "epoch", "replicas"} <= set(body)
    assert [set(replica) for replica in body["replicas"]] == [{"id", "epoch", "seen"}]


def test_one_model_tells_its_feature_schema(service: Service) -> None:
    text = httpx.get(service.url + "/models/v1").text
    assert '"user_id"' in text
    assert '"genres"' in text


BAD_WEIGHTS: list[tuple[Any, int]] = [
    ({"weights": {}}, 422),
    ({"weights": {"v1": -1}}, 422),
    ({"weights": {"v1": True}}, 422),
    ({"weights": {"v1": "1"}}, 422),
    ({"weights": {"v1": 0, "v2": 0}}, 422),
    ({"weights": {"v1": None}}, 422),
    ({"weights": [1]}, 422),
    ({}, 422),
    ({"wieghts": {"v1": 1}}, 422),
    ({"weights": {"v9": 1}}, 404),
    ({"weights": {"v1": 1}, "coverage": 1.5}, 422),
    ({"weights": {"v1": 1}, "coverage": "1"}, 422),
    ({"weights": {"v1": 1}, "default": "v9"}, 404),
    ({"weights": {"v1": 1}, "experiment": "a/b"}, 422),
    ({"weights": {"v1": 1}, "shadow": {"version": "v3", "fraction": 2}}, 422),
]


@pytest.mark.parametrize(("body", "status"), BAD_WEIGHTS, ids=[json.dumps(body) for body, _ in BAD_WEIGHTS])
def test_ab03_bad_weights_are_refused_and_nothing_is_half_applied(service: Service, body: Any, status: int) -> None:
    def document() -> Any:
        return {key: value for key, value in httpx.get(service.url + "/models").json().items() if key != "replicas"}

    before = document()
    assert service.put("/models/weights", body).status_code == status
    assert document() == before


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "1e999"])
def test_ab03_weights_that_are_not_finite_are_refused(service: Service, literal: str) -> None:
    content = f'{{"weights": {{"v1": 1, "v2": {literal}}}}}'
    response = httpx.put(service.url + "/models/weights", content=content, headers=JSON)
    assert response.status_code in (400, 422)


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/docs", "/openapi.json"])
def test_operators_pages_answer(service: Service, path: str) -> None:
    assert httpx.get(service.url + path).status_code == 200


def test_unknown_paths_and_methods_answer_strict_json(service: Service) -> None:
    assert httpx.get(service.url + "/nothing").json()["detail"]
    assert httpx.get(service.url + "/predict").status_code == 405


def test_me03_metrics_answer_directly_in_the_type_they_declare(service: Service) -> None:
    for accept, declared in (("text/plain", "text/plain"), ("application/openmetrics-text", "openmetrics-text")):
        response = httpx.get(service.url + "/metrics", headers={"Accept": accept}, follow_redirects=False)
        assert response.status_code == 200
        assert declared in response.headers["content-type"]
        assert re.search(r"^twinrank_requests_total\{", response.text, re.MULTILINE)
        assert response.text.rstrip().endswith("# EOF") == (declared == "openmetrics-text")


def test_me05_clients_cannot_invent_series(service: Service) -> None:
    before = len(service.metrics())
    with httpx.Client(base_url=service.url) as client:
        for n in range(200):
            client.get(f"/scan/{n}")
            client.request("BREW", "/predict")
            client.post("/predict", json={**ROW, "version": f"w{n}"})
            client.post("/predict", json={"instances": [{"user_id": f"z{n}"}]})
    assert len(service.metrics()) - before <= 10
