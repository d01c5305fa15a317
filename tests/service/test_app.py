"""The composition: a worker opened and closed around a tiny published version."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from service.app import State, create_app
from service.config import Settings
from service.opening import Alone, Computing
from service.scoring.predictor import Predictor
from tests.tiny import publish_tiny

ROWS = {"instances": [{"user_id": "u1", "age": 30, "price": 3, "genres": ["a"]}]}


@pytest.fixture(name="app")
def _app(tmp_path: Path) -> FastAPI:
    artifacts = tmp_path / "artifacts"
    artifacts.mkdir()
    publish_tiny(artifacts, "v1")
    return create_app(Settings(artifacts=artifacts, state=f"sqlite:///{tmp_path / 'state.db'}"))


@asynccontextmanager
async def running(app: FastAPI, *, ready: bool = True) -> AsyncIterator[tuple[httpx.AsyncClient, State]]:
    """The app's lifespan, and a client whose requests carry its state as a server's do."""
    async with app.router.lifespan_context(app) as state:

        async def with_state(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "state": dict(state)}, receive, send)

        while ready and state["control"].unready():  # noqa: ASYNC110 - as an orchestrator polls /readyz
            await asyncio.sleep(0.01)
        transport = httpx.ASGITransport(with_state)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            yield client, state


def get(app: FastAPI, path: str, **options: Any) -> httpx.Response:
    async def main() -> httpx.Response:
        async with running(app) as (client, _):
            return await client.get(path, **options)

    return asyncio.run(main())


def test_a_worker_answers_predictions_health_metrics_and_models(app: FastAPI):
    async def main() -> list[int]:
        async with running(app) as (client, _):
            answers = [await client.post("/predict", json=ROWS)]
            answers += [await client.get(path) for path in ("/livez", "/readyz", "/metrics", "/models", "/docs")]
            return [answer.status_code for answer in answers]

    assert asyncio.run(main()) == [200] * 6


def test_everything_that_was_opened_is_closed(app: FastAPI):
    before = {thread.name for thread in threading.enumerate()}

    async def main() -> Path:
        async with running(app) as (client, state):
            await client.post("/predict", json=ROWS)
            return state["metrics"].folder

    folder = asyncio.run(main())
    assert not folder.exists()
    for _ in range(200):
        left = {thread.name for thread in threading.enumerate()} - before
        if not left:
            return
        threading.Event().wait(0.01)
    pytest.fail(f"threads live on: {left}")


def test_an_app_can_be_opened_again(app: FastAPI):
    for _ in range(2):
        assert get(app, "/readyz").status_code == 200


def test_me03_metrics_answer_directly_and_are_not_counted_themselves(app: FastAPI):
    async def main() -> tuple[httpx.Response, list[str]]:
        async with running(app) as (client, _):
            for _ in range(20):
                answer = await client.get("/metrics", follow_redirects=False)
            lines = [line for line in answer.text.splitlines() if line.startswith("twinrank_requests_total")]
            return answer, [line for line in lines if not line.endswith(" 0.0")]

    answer, counted = asyncio.run(main())
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert counted == []


def test_me03_openmetrics_is_given_where_it_is_asked_for(app: FastAPI):
    answer = get(app, "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


class Held(Alone):
    """Loads wait until they are let go."""

    def __init__(self, artifacts: Path) -> None:
        super().__init__(artifacts, Computing())
        self.go = threading.Event()

    def version(self, name: str, revision: int, *, beside: bool = False) -> Predictor:
        assert self.go.wait(30)
        return super().version(name, revision, beside=beside)


def test_li01_before_its_version_is_ready_a_worker_lives_and_answers_503(app: FastAPI, tmp_path: Path):
    opening = Held(tmp_path / "artifacts")
    settings = Settings(artifacts=tmp_path / "artifacts", state=f"sqlite:///{tmp_path / 'other.db'}")

    async def main() -> list[int]:
        async with running(create_app(settings, opening=opening), ready=False) as (client, _):
            try:
                first = await client.post("/predict", json=ROWS)
                assert "retry-after" in first.headers
                return [first.status_code, *[(await client.get(path)).status_code for path in ("/livez", "/readyz")]]
            finally:
                opening.go.set()

    assert asyncio.run(main()) == [503, 200, 503]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/predict", 405), ("PUT", "/predict", 405), ("GET", "/nowhere", 404), ("POST", "/predict/", 404)],
)
def test_other_paths_and_methods_answer_in_json(app: FastAPI, method: str, path: str, status: int):
    async def main() -> httpx.Response:
        async with running(app) as (client, _):
            return await client.request(method, path, follow_redirects=False)

    answer = asyncio.run(main())
    assert answer.status_code == status
    assert isinstance(answer.json()["detail"], str)


def test_predict_stands_in_the_openapi_document_with_both_forms(app: FastAPI):
    document = get(app, "/openapi.json").json()
    entry = document["paths"]["/predict"]["post"]
    forms = entry["requestBody"]["content"]["application/json"]["schema"]["anyOf"]
    assert [form["title"] for form in forms] == ["Ranking", "Rows"]
    assert {"200", "400", "404", "409", "413", "415", "422", "429", "500", "503", "504"} <= set(entry["responses"])
    assert {"/predict", "/models", "/models/weights", "/livez", "/readyz", "/metrics"} <= set(document["paths"])


def test_the_openapi_examples_are_right_requests(app: FastAPI):
    async def main() -> list[int]:
        async with running(app) as (client, _):
            document = (await client.get("/openapi.json")).json()
            content = document["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]
            examples = content["examples"].values()
            return [(await client.post("/predict", json=example["value"])).status_code for example in examples]

    assert asyncio.run(main()) == [200, 200]
