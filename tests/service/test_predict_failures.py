"""POST /predict: what becomes of a request when the version, the queue or the client fails."""

import asyncio
import logging
import time
from typing import Any

import numpy as np
import pytest

from service.readiness import WEDGED_SECONDS
from tests.service.desk import PRICE, Desk, by_price, desk, post

ROW = {"user_id": "u1", "price": 3}
ROWS = {"instances": [ROW]}


def nan_at_one_price(encoded):
    """No number for price 19, the right answer for any other."""
    scores = by_price(encoded)
    return np.where(encoded.numerics[:, PRICE] == 1, np.nan, scores).astype(np.float32)


def broken(encoded):
    raise RuntimeError("CUDA error at /secret/path")


async def together(here: Desk, bodies: list[Any], headers: dict[str, str] | None = None) -> list[Any]:
    """The answers to requests that share a batch: the first is alone with the model, the others gather behind it."""
    engine = here.engines["v1"]
    engine.open.clear()
    first = asyncio.create_task(here.post(ROWS))
    await asyncio.sleep(0.02)
    tasks = [asyncio.create_task(here.post(body, headers)) for body in bodies]
    await asyncio.sleep(0.05)
    engine.open.set()
    await first
    return await asyncio.gather(*tasks)


def test_pr02_a_score_that_is_no_number_is_500_for_its_request_alone(caplog):
    async def main() -> tuple[list[Any], dict[str, float]]:
        async with desk(scores={"v1": nan_at_one_price}) as here:
            good, bad = {"instances": [ROW]}, {"instances": [ROW] * 9 + [{"price": 19}]}
            return await together(here, [good, bad, good]), here.counts()

    (before, bad, after), counts = asyncio.run(main())
    assert [before.status, bad.status, after.status] == [200, 500, 200]
    assert bad.json() == {
        "detail": "the model gave a score that is not finite",
        "request_id": bad.headers["x-request-id"],
    }
    assert counts["rejected_total non_finite_score"] == 1
    assert counts["requests_total 500 v1"] == 1
    assert counts["score_count v1"] == 3, "a score that is no number was counted"


def test_pr02_a_score_that_is_no_number_takes_no_place_in_a_ranking():
    async def main() -> Any:
        async with desk(scores={"v1": nan_at_one_price}) as here:
            return await here.post({"user": {}, "candidates": [f"i{n}" for n in range(20)], "top_k": 5})

    answer = asyncio.run(main())
    assert answer.status == 500
    assert b"NaN" not in answer.body
    assert b"null" not in answer.body


def test_ba01_one_request_that_cannot_be_encoded_fails_alone():
    async def main() -> list[Any]:
        async with desk() as here:
            bodies = [{"instances": [{"price": price, "age": "x" if price == 3 else 30}]} for price in range(8)]
            answers = await together(here, bodies)
            assert here.engines["v1"].calls[-1] == 7, "the good ones did not share a batch"
            return answers

    answers = asyncio.run(main())
    assert [answer.status for answer in answers] == [200] * 3 + [422] + [200] * 4
    for n in (0, 1, 2, 4, 5, 6, 7):
        assert answers[n].json()["predictions"] == pytest.approx([0.1 + 0.8 * n / 19], abs=1e-5)


def test_ba01_a_request_that_breaks_the_encoder_is_500_alone():
    async def main() -> list[int]:
        async with desk() as here:
            predictor = here.versions.ready["v1"].predictor
            encode = predictor.encode

            def fragile(requests, catalog=None):
                if any(request.instances[0].get("price") == 13 for request in requests):
                    raise ZeroDivisionError("a bug")
                return encode(requests, catalog)

            predictor.encode = fragile
            bodies = [{"instances": [{"price": price}]} for price in (12, 13, 14)]
            return [answer.status for answer in await together(here, bodies)]

    assert asyncio.run(main()) == [200, 500, 200]


def test_a_model_that_fails_is_500_with_the_request_id_and_no_internals(caplog):
    async def main() -> tuple[Any, dict[str, float]]:
        async with desk(scores={"v1": broken}) as here:
            return await here.post(ROWS, {"X-Request-Id": "look-me-up"}), here.counts()

    with caplog.at_level(logging.ERROR, "twinrank"):
        answer, counts = asyncio.run(main())
    assert answer.status == 500
    assert answer.json() == {"detail": "the model failed", "request_id": "look-me-up"}
    assert answer.headers["x-model-version"] == "v1"
    assert counts["rejected_total model_failed"] == 1
    (record,) = caplog.records
    assert record.fields["request_id"] == "look-me-up"
    assert "CUDA error" in caplog.text


def test_a_full_queue_is_429_at_once_with_retry_after():
    async def main() -> tuple[Any, float, dict[str, float]]:
        async with desk(max_rows=10, queue_rows=10) as here:
            engine = here.engines["v1"]
            engine.open.clear()
            running = asyncio.create_task(here.post(ROWS))
            await asyncio.sleep(0.02)
            waiting = asyncio.create_task(here.post({"instances": [ROW] * 8}))
            await asyncio.sleep(0)
            begun = time.perf_counter()
            refused = await here.post({"instances": [ROW] * 3})
            seconds = time.perf_counter() - begun
            counts = here.counts()
            fits = asyncio.create_task(here.post({"instances": [ROW] * 2}))
            await asyncio.sleep(0)
            engine.open.set()
            assert [(await one).status for one in (running, waiting, fits)] == [200] * 3
            return refused, seconds, counts

    refused, seconds, counts = asyncio.run(main())
    assert refused.status == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert seconds < 0.1
    assert counts["rejected_total queue_full"] == 1
    assert counts["requests_total 429 v1"] == 1
    assert counts["queue_rows v1"] == 8
    assert counts["in_flight"] == 2


def test_a_deadline_that_passes_in_the_queue_is_504_and_is_not_scored():
    async def main() -> tuple[list[int], list[int], dict[str, float]]:
        async with desk() as here:
            answers = await together(here, [{"instances": [ROW] * 5}] * 3, {"X-Request-Timeout-Ms": "20"})
            return [answer.status for answer in answers], here.engines["v1"].calls, here.counts()

    statuses, calls, counts = asyncio.run(main())
    assert statuses == [504] * 3
    assert calls == [1]
    assert counts["rejected_total deadline"] == 3
    assert counts["requests_total 504 v1"] == 3


@pytest.mark.parametrize("header", ["0", "0.000001"])
def test_a_deadline_that_has_passed_is_504(header: str):
    async def main() -> tuple[int, list[int]]:
        async with desk() as here:
            return (await here.post(ROWS, {"X-Request-Timeout-Ms": header})).status, here.engines["v1"].calls

    assert asyncio.run(main()) == (504, [])


def test_the_services_own_deadline_holds_where_the_request_names_none():
    async def main() -> list[int]:
        async with desk(timeout_ms=20.0) as here:
            patient = {"X-Request-Timeout-Ms": "5000"}
            return [
                (await together(here, [ROWS]))[0].status,
                (await together(here, [ROWS], patient))[0].status,
                (await here.post(ROWS)).status,
            ]

    async def slow_first() -> list[int]:
        async with desk() as here:
            return [(await together(here, [ROWS]))[0].status]

    assert asyncio.run(main()) == [504, 200, 200]
    assert asyncio.run(slow_first()) == [200]


def test_li04_a_wedged_model_gives_504_where_there_is_a_deadline_and_503_to_those_who_come_later():
    async def main() -> tuple[int, int, Any]:
        async with desk() as here:
            engine = here.engines["v1"]
            engine.open.clear()
            stuck = await here.post(ROWS, {"X-Request-Timeout-Ms": "30"})
            soon = await here.post(ROWS, {"X-Request-Timeout-Ms": "30"})
            batcher = here.versions.ready["v1"].batcher
            batcher._running.started -= WEDGED_SECONDS + 1
            later = await here.post(ROWS)
            return stuck.status, soon.status, later

    stuck, soon, later = asyncio.run(main())
    assert (stuck, soon, later.status) == (504, 504, 503)
    assert "retry-after" in later.headers


def test_without_a_ready_version_the_answer_is_503_with_retry_after():
    async def main() -> list[Any]:
        async with desk() as here:
            loaded = here.versions.ready.pop("v1")
            here.versions.others["v1"] = ("failed", "bad file /secret/path")
            answers = [await here.post(ROWS)]
            here.versions.ready["v1"] = loaded
            here.view.document = type(here.view.document)()
            answers.append(await here.post(ROWS))
            return answers

    for answer in asyncio.run(main()):
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) >= 1
        assert b"secret" not in answer.body


def test_while_draining_the_answer_is_503_and_what_was_taken_is_answered():
    async def main() -> tuple[int, Any]:
        async with desk() as here:
            engine = here.engines["v1"]
            engine.open.clear()
            taken = asyncio.create_task(here.post(ROWS))
            await asyncio.sleep(0.02)
            here.view.draining = True
            refused = await here.post(ROWS)
            engine.open.set()
            return (await taken).status, refused

    taken, refused = asyncio.run(main())
    assert taken == 200
    assert refused.status == 503
    assert "retry-after" in refused.headers


def test_a_version_that_is_unloaded_meanwhile_answers_what_it_has_taken():
    async def main() -> list[int]:
        async with desk() as here:
            engine = here.engines["v1"]
            engine.open.clear()
            tasks = [asyncio.create_task(here.post(ROWS)) for _ in range(5)]
            await asyncio.sleep(0.02)
            closing = asyncio.create_task(here.versions.ready["v1"].batcher.close())
            await asyncio.sleep(0)
            late = await here.post(ROWS)
            engine.open.set()
            await closing
            return [(await task).status for task in tasks] + [late.status]

    assert asyncio.run(main()) == [200] * 5 + [503]


def test_ba03_clients_that_leave_while_they_wait_are_not_scored_and_later_ones_are():
    async def main() -> tuple[list[int], dict[str, float]]:
        async with desk() as here:
            engine = here.engines["v1"]
            engine.open.clear()
            running = asyncio.create_task(here.post(ROWS))
            await asyncio.sleep(0.02)
            gone = asyncio.Event()
            raw = b'{"instances":[{"price":3}]}'
            left = [asyncio.create_task(post(here.endpoint, [raw], {}, gone=gone)) for _ in range(200)]
            await asyncio.sleep(0.1)
            gone.set()
            assert [answer.status for answer in await asyncio.gather(*left)] == [0] * 200
            engine.open.set()
            await running
            answers = await asyncio.gather(*(here.post(ROWS) for _ in range(200)))
            assert [answer.status for answer in answers] == [200] * 200
            return engine.calls, here.counts()

    calls, counts = asyncio.run(main())
    assert sum(calls) == 201
    assert counts["rejected_total abandoned"] == 200
    assert counts["requests_total 499 v1"] == 200
    assert "in_flight" not in counts
    assert "queue_rows v1" not in counts


def test_a_client_that_leaves_before_its_body_is_whole_is_forgotten():
    async def main() -> tuple[int, dict[str, float]]:
        async with desk() as here:

            async def receive() -> Any:
                return {"type": "http.disconnect"}

            async def send(message: Any) -> None:
                raise AssertionError("somebody was answered")

            await here.endpoint({"type": "http", "headers": []}, receive, send)
            return (await here.post(ROWS)).status, here.counts()

    status, counts = asyncio.run(main())
    assert status == 200
    assert counts["requests_total 499 none"] == 1


def test_what_the_table_does_not_know_is_500_without_internals(caplog):
    async def main() -> Any:
        async with desk() as here:
            here.versions.get = lambda version: 1 / 0
            return await here.post(ROWS)

    answer = asyncio.run(main())
    assert answer.status == 500
    assert answer.json() == {"detail": "the server failed", "request_id": answer.headers["x-request-id"]}


def test_counts_of_answers_rows_scores_and_assignments_agree():
    async def main() -> dict[str, float]:
        async with desk(scores={"v1": by_price, "v2": by_price}, weights={"v1": 1, "v2": 1}) as here:
            for n in range(60):
                assert (await here.post({"instances": [{"user_id": n}] * 3})).status == 200
            assert (await here.post({"instances": [{}], "version": "v2"})).status == 200
            assert (await here.post({"instances": []})).status == 422
            assert (await here.post({"instances": [{"age": "x"}], "version": "v1"})).status == 422
            return here.counts()

    counts = asyncio.run(main())
    assert counts["requests_total 200 v1"] + counts["requests_total 200 v2"] == 61
    assert counts["request_seconds_count v1"] == counts["requests_total 200 v1"] + 1
    assert counts["requests_total 422 none"] == 1
    assert counts["requests_total 422 v1"] == 1
    for name, rows in (("rows_total", 181), ("score_count", 181), ("batch_rows_sum", 182)):
        assert counts[f"{name} v1"] + counts[f"{name} v2"] == rows, name
    assert counts["assignments_total split v1"] + counts["assignments_total split v2"] == 60
    assert counts["assignments_total override v2"] == 1
    assert counts["queue_seconds_count v1"] == counts["requests_total 200 v1"] + 1


def test_me04_the_latency_that_is_counted_is_the_clients():
    async def main() -> tuple[list[float], dict[str, float]]:
        def slow(encoded):
            time.sleep(0.012)
            return by_price(encoded)

        async with desk(scores={"v1": slow}, budget_ms=60_000) as here:
            waits = []
            for _ in range(50):
                begun = time.perf_counter()
                await here.post(ROWS)
                waits.append(time.perf_counter() - begun)
            return waits, here.counts()

    waits, counts = asyncio.run(main())
    assert counts["request_seconds_count v1"] == 50
    assert counts["request_seconds_sum v1"] == pytest.approx(sum(waits), rel=0.2)
    assert 50 * 0.012 <= counts["model_seconds_sum v1"] <= counts["request_seconds_sum v1"]
    assert "request_seconds_bucket 0.01 v1" not in counts
