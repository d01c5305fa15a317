"""Batcher: hand-made run functions, a gate to hold the thread, no models."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from service.batching import Answer, Batcher, BatchFailed, DeadlinePassed, Draining, Load, QueueFull
from service.batching.cost import LEARNING


class Gate:
    """A run function that waits to be let through and remembers what it was given."""

    def __init__(self, run: Callable[[list[Any]], Sequence[Any]] = lambda items: [item * 10 for item in items]) -> None:
        self.batches: list[list[Any]] = []
        self.open = threading.Event()
        self.run = run

    def __call__(self, items: list[Any]) -> Sequence[Any]:
        self.batches.append(list(items))
        assert self.open.wait(10), "the gate was never opened"
        return self.run(items)


def batcher(run: Callable[[list[Any]], Sequence[Any]], **options: Any) -> Batcher[Any, Any]:
    options = {"rows": lambda item: 1, "max_batch_rows": 8, "max_queue_rows": 100, **options}
    return Batcher(run, **options)


def opened(run: Callable[[list[Any]], Sequence[Any]]) -> Gate:
    gate = Gate(run)
    gate.open.set()
    return gate


async def start(*calls: Awaitable[Any]) -> list[asyncio.Future[Any]]:
    """The calls as tasks, each up to its first await; the first, where nothing runs, is a batch of its own."""
    tasks: list[asyncio.Future[Any]] = []
    for together in (calls[:1], calls[1:]):
        tasks.extend(asyncio.ensure_future(call) for call in together)
        for _ in range(3):
            await asyncio.sleep(0)
    return tasks


def test_a_caller_gets_its_own_result():
    async def main() -> list[Answer[int]]:
        queue = batcher(lambda items: [item * 10 for item in items])
        return await asyncio.gather(*(queue.submit(number) for number in range(20)))

    assert [answer.value for answer in asyncio.run(main())] == [number * 10 for number in range(20)]


def test_what_gathers_while_a_batch_runs_goes_together():
    async def main() -> list[list[int]]:
        gate = Gate()
        queue = batcher(gate)
        tasks = await start(*(queue.submit(number) for number in range(4)))
        gate.open.set()
        await asyncio.gather(*tasks)
        return gate.batches

    assert asyncio.run(main()) == [[0], [1, 2, 3]]


def test_a_lone_request_does_not_wait_for_company():
    async def main() -> float:
        queue = batcher(lambda items: items)
        await queue.submit(0)
        started = time.perf_counter()
        await queue.submit(1)
        return time.perf_counter() - started

    assert asyncio.run(main()) < 0.05


def test_a_batch_counts_rows_and_a_large_request_runs_alone():
    async def main() -> list[list[int]]:
        gate = Gate()
        queue = batcher(gate, rows=lambda item: item, max_batch_rows=10)
        tasks = await start(*(queue.submit(rows) for rows in (1, 4, 6, 5, 50, 2)))
        gate.open.set()
        await asyncio.gather(*tasks)
        return gate.batches

    assert asyncio.run(main()) == [[1], [4, 6], [5], [50], [2]]


def test_the_queue_is_bounded_in_rows_and_refuses_at_once():
    async def main() -> None:
        gate = Gate()
        queue = batcher(gate, rows=lambda item: item, max_queue_rows=10)
        tasks = await start(queue.submit(3), queue.submit(6), queue.submit(4))
        assert queue.queue_rows == 10
        with pytest.raises(QueueFull):
            await queue.submit(1)
        gate.open.set()
        await asyncio.gather(*tasks)
        assert queue.queue_rows == 0

    asyncio.run(main())


def test_an_empty_queue_admits_a_request_larger_than_its_bound():
    async def main() -> int:
        gate = Gate()
        queue = batcher(gate, rows=lambda item: item, max_queue_rows=10)
        tasks = await start(queue.submit(1), queue.submit(4000))
        gate.open.set()
        return (await asyncio.gather(*tasks))[1].value

    assert asyncio.run(main()) == 40000


def test_rows_of_callers_that_left_make_room():
    async def main() -> int:
        gate = Gate()
        queue = batcher(gate, rows=lambda item: item, max_queue_rows=10)
        first, left = await start(queue.submit(1), queue.submit(10))
        left.cancel()
        (late,) = await start(queue.submit(9))
        gate.open.set()
        await first
        return (await late).value

    assert asyncio.run(main()) == 90


def test_ba01_an_item_that_fails_does_not_fail_its_neighbours():
    def run(items: list[int]) -> list[int | Exception]:
        return [ValueError("three") if item == 3 else item for item in items]

    async def main() -> list[Any]:
        gate = Gate(run)
        queue = batcher(gate)
        tasks = await start(*(queue.submit(number) for number in range(8)))
        gate.open.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    answers = asyncio.run(main())
    assert [type(answer) for answer in answers] == [Answer] * 3 + [ValueError] + [Answer] * 4
    assert [answer.value for answer in answers if isinstance(answer, Answer)] == [0, 1, 2, 4, 5, 6, 7]


@pytest.mark.parametrize("error", [RuntimeError("out of memory"), SystemExit(1)])
def test_a_failed_batch_fails_each_of_its_callers(error: BaseException):
    def run(items: list[int]) -> list[int]:
        raise error

    async def main() -> list[Any]:
        gate = Gate(run)
        queue = batcher(gate)
        tasks = await start(*(queue.submit(number) for number in range(4)))
        gate.open.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    failures = asyncio.run(main())
    assert [type(failure) for failure in failures] == [BatchFailed] * 4
    assert len(set(map(id, failures))) == 4
    assert all(failure.__cause__ is error for failure in failures)


@pytest.mark.parametrize("results", [[], [1], [1, 2, 3]])
def test_a_wrong_number_of_results_fails_the_batch_rather_than_mixing_rows(results: list[int]):
    async def main() -> list[Any]:
        gate = Gate(lambda items: [0] if items == ["first"] else results)
        queue = batcher(gate)
        tasks = await start(queue.submit("first"), queue.submit("a"), queue.submit("b"))
        gate.open.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, *rest = asyncio.run(main())
    assert first.value == 0
    assert [str(failure) for failure in rest] == [f"ValueError: {len(results)} results for 2 requests"] * 2


def test_ba03_callers_that_left_are_dropped_and_later_ones_are_answered():
    async def main() -> None:
        gate = Gate()
        queue = batcher(gate, max_queue_rows=1000)
        first, *gone = await start(*(queue.submit(number) for number in range(201)))
        for task in gone:
            task.cancel()
        await asyncio.sleep(0)
        gate.open.set()
        await first
        answers = await asyncio.gather(*(queue.submit(number) for number in range(200)))
        assert [answer.value for answer in answers] == [number * 10 for number in range(200)]
        assert sum(map(len, gate.batches)) == 201, "an abandoned request was run"
        assert queue.queue_rows == 0
        assert queue.busy_seconds == 0

    asyncio.run(main())


def test_ba03_cancelling_every_member_of_a_running_batch_stops_nothing():
    async def main() -> int:
        gate = Gate()
        queue = batcher(gate)
        tasks = await start(queue.submit(0), queue.submit(1), queue.submit(2))
        for task in tasks:
            task.cancel()
        await asyncio.sleep(0)
        gate.open.set()
        return (await queue.submit(7)).value

    assert asyncio.run(main()) == 70


def test_ba03_an_item_that_cannot_be_sized_fails_alone():
    async def main() -> int:
        queue = batcher(lambda items: items, rows=len)
        with pytest.raises(TypeError):
            await queue.submit(3)
        return len((await queue.submit([1, 2])).value)

    assert asyncio.run(main()) == 2


def test_ba03_a_hook_that_raises_stops_nothing():
    def broken(*_: object) -> None:
        raise RuntimeError("a broken hook")

    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        seen: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: seen.append(context))
        gate = Gate()
        queue = batcher(gate, on_batch=broken)
        tasks = await start(queue.submit(1), queue.submit(2))
        gate.open.set()
        answers = [answer.value for answer in await asyncio.gather(*tasks)]
        answers.append((await queue.submit(3)).value)
        await asyncio.sleep(0.05)
        assert all(isinstance(context["exception"], RuntimeError) for context in seen)
        return answers

    assert asyncio.run(main()) == [10, 20, 30]


def test_a_deadline_that_has_passed_is_refused_before_scoring():
    async def main() -> list[list[int]]:
        now = 100.0
        gate = opened(lambda items: items)
        queue = batcher(gate, clock=lambda: now)
        with pytest.raises(DeadlinePassed):
            await queue.submit(1, deadline=100.0)
        return gate.batches

    assert asyncio.run(main()) == []


def test_a_caller_whose_deadline_passes_in_the_queue_hears_at_once_and_is_not_run():
    async def main() -> list[list[int]]:
        gate = Gate()
        queue = batcher(gate)
        (first,) = await start(queue.submit(0))
        with pytest.raises(DeadlinePassed):
            await queue.submit(1, deadline=time.monotonic() + 0.02)
        gate.open.set()
        await first
        await queue.submit(2)
        return gate.batches

    assert asyncio.run(main()) == [[0], [2]]


def test_a_deadline_is_checked_by_the_clock_when_the_batch_is_formed():
    async def main() -> list[list[int]]:
        now = 0.0
        gate = Gate()
        queue = batcher(gate, clock=lambda: now)
        first, late = await start(queue.submit(0), queue.submit(1, deadline=5.0))
        now = 6.0
        gate.open.set()
        await first
        with pytest.raises(DeadlinePassed):
            await late
        return gate.batches

    assert asyncio.run(main()) == [[0]]


@pytest.mark.parametrize("company", [(), (3, 4)])
def test_who_is_too_late_may_add_its_next_item_at_once(company):
    class Promise:
        """Ended, it acts at once: `then` adds the next item."""

        def __init__(self, then: Callable[[], None] = lambda: None) -> None:
            self.ended, self.then, self.result = False, then, None

        def done(self) -> bool:
            return self.ended

        def set_result(self, result: Any) -> None:
            self.ended, self.result = True, result

        def set_exception(self, exception: BaseException) -> None:
            self.ended = True
            self.then()

        def add_done_callback(self, call: Callable[[Any], object]) -> None:
            pass

    async def main() -> list[list[int]]:
        now = 0.0
        gate = Gate()
        queue = batcher(gate, clock=lambda: now, max_batch_rows=1)
        (first,) = await start(queue.submit(0))
        following = Promise()
        queue.add(1, Promise(lambda: queue.add(2, following)), deadline=5.0)
        for item in company:
            queue.add(item, Promise())
        now = 6.0
        gate.open.set()
        await first
        async with asyncio.timeout(5):
            await queue.close()
        assert following.ended
        assert queue.queue_rows == 0
        return gate.batches

    assert asyncio.run(main()) == [[0], *([item] for item in company), [2]]


def test_a_deadline_that_passes_while_the_model_works_ends_the_wait():
    async def main() -> None:
        gate = Gate()
        queue = batcher(gate)
        with pytest.raises(DeadlinePassed):
            await queue.submit(0, deadline=time.monotonic() + 0.02)
        gate.open.set()

    asyncio.run(main())


def test_busy_seconds_is_the_age_of_the_running_batch():
    async def main() -> None:
        now = 10.0
        gate = Gate()
        queue = batcher(gate, clock=lambda: now)
        assert queue.busy_seconds == 0
        tasks = await start(queue.submit(0))
        now = 13.5
        assert queue.busy_seconds == 3.5
        gate.open.set()
        await asyncio.gather(*tasks)
        assert queue.busy_seconds == 0

    asyncio.run(main())


def test_the_hook_hears_rows_waits_and_run_time():
    heard: list[tuple[int, list[float], float]] = []

    async def main() -> list[Answer[int]]:
        now = 0.0

        def run(items: list[int]) -> list[int]:
            nonlocal now
            now += 2.0
            return items

        gate = Gate(run)
        queue = batcher(
            gate,
            rows=lambda item: item,
            clock=lambda: now,
            on_batch=lambda rows, waits, seconds: heard.append((rows, waits, seconds)),
        )
        tasks = await start(queue.submit(1), queue.submit(2), queue.submit(3))
        gate.open.set()
        return await asyncio.gather(*tasks)

    answers = asyncio.run(main())
    assert heard == [(1, [0.0], 2.0), (5, [2.0, 2.0], 2.0)]
    assert answers[2] == Answer(3, 2.0, 2.0)


def test_closing_answers_all_that_is_queued_and_refuses_what_comes_later():
    async def main() -> list[int]:
        gate = Gate()
        queue = batcher(gate, max_batch_rows=1)
        tasks = await start(*(queue.submit(number) for number in range(3)))
        (closing,) = await start(queue.close())
        with pytest.raises(Draining):
            await queue.submit(9)
        gate.open.set()
        await closing
        return [answer.value for answer in await asyncio.gather(*tasks)]

    assert asyncio.run(main()) == [0, 10, 20]


def test_closing_with_a_limit_fails_those_that_a_stuck_model_keeps_waiting():
    async def main() -> list[Any]:
        gate = Gate()
        queue = batcher(gate)
        tasks = await start(queue.submit(0), queue.submit(1))
        await queue.close(seconds=0.02)
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        gate.open.set()
        return answers

    assert [type(answer) for answer in asyncio.run(main())] == [Draining, Draining]


def test_closing_ends_the_thread():
    async def main() -> None:
        queue = batcher(lambda items: items, name="a batcher to end")
        await queue.submit(1)
        await queue.close()
        for _ in range(100):
            if all(thread.name != "a batcher to end" for thread in threading.enumerate()):
                return
            await asyncio.sleep(0.01)
        pytest.fail("the thread lives on")

    asyncio.run(main())


def test_the_event_loop_goes_on_while_run_works():
    async def main() -> int:
        gate = Gate()
        queue = batcher(gate)
        tasks = await start(queue.submit(0))
        turns = 0
        for _ in range(100):
            await asyncio.sleep(0)
            turns += 1
        gate.open.set()
        await asyncio.gather(*tasks)
        return turns

    assert asyncio.run(main()) == 100


async def taught(run: Callable[[list[Any]], Sequence[Any]], **options: Any) -> Batcher[Any, Any]:
    """A batcher that runs on the loop and has learned that its calls take no time."""
    queue = batcher(run, inline=True, **options)
    for _ in range(LEARNING):
        await queue.submit(1)
    return queue


def test_calls_run_in_the_thread_until_they_are_known_to_be_short_and_then_on_the_loop():
    async def main() -> list[bool]:
        threads: list[int] = []

        def run(items: list[int]) -> list[int]:
            threads.append(threading.get_ident())
            return items

        queue = await taught(run)
        await queue.submit(1)
        return [thread == threading.get_ident() for thread in threads]

    assert asyncio.run(main()) == [False] * LEARNING + [True]


def test_a_call_that_will_be_long_goes_to_the_thread():
    async def main() -> list[bool]:
        now = 0.0
        threads: list[int] = []

        def run(items: list[int]) -> list[int]:
            nonlocal now
            threads.append(threading.get_ident())
            now += sum(items) * 1e-5
            return items

        queue = await taught(run, rows=lambda item: item, clock=lambda: now, busy_clock=lambda: now)
        for rows in (200, 255, 4000, 100):
            await queue.submit(rows)
        return [thread == threading.get_ident() for thread in threads[LEARNING:]]

    assert asyncio.run(main()) == [True, False, False, True]


def test_all_that_arrives_in_one_turn_of_the_loop_is_one_batch():
    async def main() -> list[list[int]]:
        gate = opened(lambda items: items)
        queue = await taught(gate)
        gate.batches.clear()
        await asyncio.gather(*(queue.submit(number) for number in range(8)))
        return gate.batches

    assert asyncio.run(main()) == [list(range(8))]


def test_large_items_are_called_alone_and_take_turns_with_small_ones():
    async def main() -> list[list[int]]:
        gate = Gate()
        queue = batcher(gate, rows=lambda item: item, max_batch_rows=4096, max_queue_rows=10_000)
        tasks = await start(*(queue.submit(rows) for rows in (500, 501, 1, 502, 2, 503)))
        gate.open.set()
        await asyncio.gather(*tasks)
        return gate.batches

    assert asyncio.run(main()) == [[500], [501], [1, 2], [502], [503]]


def test_a_small_item_waits_for_one_large_call_at_most():
    async def main() -> list[list[int]]:
        gate = Gate()
        queue = batcher(gate, rows=lambda item: item, max_batch_rows=4096, max_queue_rows=10_000)
        tasks = await start(*(queue.submit(rows) for rows in (500, 501, 502, 503)))
        tasks += await start(queue.submit(1))
        gate.open.set()
        await asyncio.gather(*tasks)
        return gate.batches

    batches = asyncio.run(main())
    assert batches.index([1]) <= 2


def test_items_of_different_types_are_not_mixed_in_a_call():
    async def main() -> list[list[Any]]:
        gate = Gate(lambda items: items)
        queue = batcher(gate)
        tasks = await start(*(queue.submit(item) for item in (0, 1, "a", 2, "b")))
        gate.open.set()
        await asyncio.gather(*tasks)
        return gate.batches

    assert asyncio.run(main()) == [[0], [1, 2], ["a", "b"]]


def test_more_work_than_fits_the_budget_is_refused_with_the_time_it_would_take():
    async def main() -> None:
        now = 0.0

        def run(items: list[int]) -> list[int]:
            nonlocal now
            now += 1e-3 * sum(items)
            return items

        gate = opened(run)
        queue = batcher(gate, rows=lambda item: item, clock=lambda: now, load=Load(0.1, clock=lambda: now))
        for rows in (1, 2, 3, 4) * LEARNING:
            await queue.submit(rows)
        gate.open.clear()
        tasks = await start(queue.submit(10), queue.submit(30))
        with pytest.raises(QueueFull) as refused:
            await queue.submit(40)
        assert refused.value.seconds == pytest.approx(0.04, rel=0.05)
        tasks += await start(queue.submit(9))
        gate.open.set()
        await asyncio.gather(*tasks)
        await queue.submit(1000)  # nothing waits: whatever is within the limit of rows is taken

    asyncio.run(main())


def test_two_versions_of_a_worker_share_its_budget():
    async def main() -> None:
        now = 0.0

        def run(items: list[int]) -> list[int]:
            nonlocal now
            now += 1e-3
            return items

        load = Load(0.1, clock=lambda: now)
        queue = batcher(run, clock=lambda: now, load=load)
        for _ in range(LEARNING + 1):
            await queue.submit(1)
        await asyncio.sleep(0.01)
        load.take(0.5)  # what another version's batcher has taken on
        with pytest.raises(QueueFull):
            await queue.submit(1)
        load.drop(1, 0.5)
        await queue.submit(1)

    asyncio.run(main())
