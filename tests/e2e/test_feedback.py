"""Feedback on a real service of two workers: each event once whoever takes it, none lost that was answered 202."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import orjson
import psutil
import pytest

from service.state import StateStore
from tests.e2e.server import Service, serving

BATCH = 500
RESULTS = ("accepted", "duplicate", "late", "invalid")
Event = dict[str, Any]


@pytest.fixture
def fresh(tiny_artifacts: Path, tmp_path: Path) -> Iterator[Service]:
    with serving(tiny_artifacts, tmp_path, "--workers", "2", "--load", "all", "--weights", "v1=50,v2=50") as running:
        yield running


@pytest.fixture
def anywhere(tiny_artifacts: Path, tmp_path: Path, any_state: str) -> Iterator[Service]:
    """The same over each kind of database."""
    options = ("--workers", "2", "--load", "all", "--weights", "v1=50,v2=50", "--state", any_state)
    with serving(tiny_artifacts, tmp_path, *options) as running:
        yield running


def predicted(service: Service, units: Iterable[int]) -> list[tuple[str, str]]:
    """(prediction id, version) for each unit."""

    def ask(client: httpx.Client, unit: int) -> tuple[str, str]:
        while True:
            answer = client.post("/predict", json={"user": {"age": 30}, "candidates": ["i1"], "unit_id": unit})
            if answer.status_code != 429:
                return answer.json()["prediction_id"], answer.json()["model_version"]

    with httpx.Client(base_url=service.url, timeout=30) as client, ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda unit: ask(client, unit), units))


def event(prediction: str, item: int, kind: str = "impression") -> Event:
    return {"prediction_id": prediction, "type": kind, "item_id": item}


def send(client: httpx.Client, events: list[Event]) -> Counter[str]:
    answer = client.post("/feedback", content=orjson.dumps({"events": events}))
    assert answer.status_code == 202, answer.text
    return Counter({name: answer.json()[name] for name in RESULTS})


def send_anew(service: Service, events: list[Event]) -> Counter[str]:
    """Over a connection of its own: the workers take turns with those."""
    with httpx.Client(base_url=service.url, timeout=30) as client:
        return send(client, events)


def stored(service: Service) -> Counter[tuple[str, str]]:
    """What the cells have, by version and what is counted."""
    given = service.options
    url = given[given.index("--state") + 1] if "--state" in given else f"sqlite:///{service.folder / 'state.db'}"
    found: Counter[tuple[str, str]] = Counter()
    with StateStore.open(url) as store, store.reading() as view:
        for key, counts in view.counts.cells(range(100)):
            for name in ("predictions", "impressions", "clicks"):
                found[key.version, name] += getattr(counts, name)
    return found


def test_a_retry_at_once_through_the_other_worker_counts_once(fresh: Service) -> None:
    events = [event(prediction, item) for prediction, _ in predicted(fresh, range(20)) for item in range(10)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: send_anew(fresh, events), range(8)))
    total = sum(results, Counter[str]())
    assert total == Counter(accepted=200, duplicate=1400)
    assert sum(count for (_, name), count in stored(fresh).items() if name == "impressions") == 200
    found = fresh.metrics()
    assert found['twinrank_feedback_total{result="duplicate"}'] == 1400
    assert sum(value for key, value in found.items() if key.startswith("twinrank_impressions_total")) == 200


def test_predictions_clicks_and_units_meet_in_the_store(fresh: Service) -> None:
    given = predicted(fresh, range(100))
    wanted = Counter(version for _, version in given)
    send_anew(fresh, [event(prediction, 1, "click") for prediction, _ in given])
    time.sleep(1.2)
    found = stored(fresh)
    assert {version: found[version, "clicks"] for version in wanted} == dict(wanted)
    assert {version: found[version, "predictions"] for version in wanted} == dict(wanted)


def test_a_report_has_what_was_sent_as_soon_as_it_is_answered(fresh: Service) -> None:
    given = predicted(fresh, range(40))
    send_anew(fresh, [event(prediction, 1, kind) for prediction, _ in given for kind in ("impression", "click")])
    versions = httpx.get(fresh.url + "/experiments/default", timeout=30).json()["versions"]
    wanted = Counter(version for _, version in given)
    assert {one["version"]: (one["impressions"], one["clicks"]) for one in versions} == {
        version: (count, count) for version, count in wanted.items()
    }


def test_killed_workers_lose_at_most_the_last_second_of_predictions(fresh: Service) -> None:
    given = predicted(fresh, range(100))
    time.sleep(1.2)
    for worker in fresh.workers():
        worker.kill()
    found = stored(fresh)
    assert sum(found[version, "predictions"] for version in ("v1", "v2")) == len(given)


def test_feedback_is_refused_once_the_state_file_was_moved_away(fresh: Service) -> None:
    ((prediction, _),) = predicted(fresh, [1])
    (fresh.folder / "state.db").rename(fresh.folder / "elsewhere.db")
    answer = httpx.post(fresh.url + "/feedback", json={"events": [event(prediction, 1)]}, timeout=30)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_a_killed_worker_loses_no_event_that_was_answered(anywhere: Service) -> None:
    predictions = [prediction for prediction, _ in predicted(anywhere, range(200))]
    stop = threading.Event()

    def feed(number: int) -> list[Event]:
        """The events that were answered 202."""
        answered: list[Event] = []
        for turn in range(10_000):
            if stop.is_set():
                break
            events = [event(prediction, number * 1_000_000 + turn) for prediction in predictions]
            try:
                answer = httpx.post(anywhere.url + "/feedback", json={"events": events}, timeout=30)
            except httpx.TransportError:
                continue
            if answer.status_code == 202:
                assert answer.json()["accepted"] == len(events)
                answered += events
        return answered

    with ThreadPoolExecutor(4) as pool:
        feeding = [pool.submit(feed, number) for number in range(4)]
        for _ in range(3):
            time.sleep(1)
            anywhere.workers()[0].kill()
        time.sleep(1)
        stop.set()
        answered = [event for one in feeding for event in one.result()]
    anywhere.wait("/readyz", 20)
    assert len(answered) > 2000
    total = Counter[str]()
    for start in range(0, len(answered), 5000):
        total += send_anew(anywhere, answered[start : start + 5000])
    assert total == Counter(duplicate=len(answered))
    print(f"{len(answered)} events answered 202 while three workers were killed, none lost")


def busy(service: Service) -> float:
    """Seconds of CPU that the workers have used."""
    return sum(sum(one.cpu_times()[:2]) for one in service.workers())


def forged(rng: random.Random, prediction: str) -> str:
    """An id that somebody changed."""
    place = rng.randrange(len(prediction))
    return prediction[:place] + rng.choice("abcdefgh".replace(prediction[place], "")) + prediction[place + 1 :]


def million(rng: random.Random, given: list[tuple[str, str]], size: int) -> tuple[list[Event], Counter[str]]:
    """Events of which 5 % are forged and 10 % repeats; what should be counted.

    They come about as they were predicted; a repeat at any time after, a forged one at any time.
    """
    repeats, bad = size // 10, size // 20
    each = -(-(size - repeats - bad) // len(given))
    fresh = [
        event(prediction, item // 5, "click" if item % 5 == 0 else "impression")
        if item % 5 in (0, 1)
        else event(prediction, 1000 + item)
        for prediction, _ in given
        for item in range(each)
    ][: size - repeats - bad]
    placed = [(n + rng.random() * 10 * BATCH, one) for n, one in enumerate(fresh)]
    placed += [
        (n + 10 * BATCH + rng.random() * len(fresh), fresh[n]) for n in rng.choices(range(len(fresh)), k=repeats)
    ]
    placed += [(rng.random() * len(fresh), event(forged(rng, rng.choice(given)[0]), n)) for n in range(bad)]
    events = [one for _, one in sorted(placed, key=lambda pair: pair[0])]
    versions = dict(given)
    wanted = Counter(f"{versions[one['prediction_id']]} {one['type']}s" for one in fresh)
    return events, wanted


@pytest.mark.slow
def test_a_million_events_are_counted_exactly_at_20000_a_second(anywhere: Service) -> None:
    rng = random.Random(7)
    given = predicted(anywhere, range(10_000))
    events, wanted = million(rng, given, 1_000_000)
    bodies = [orjson.dumps({"events": events[n : n + BATCH]}) for n in range(0, len(events), BATCH)]
    events.clear()
    before = [one.memory_info().rss for one in anywhere.workers()]
    used = busy(anywhere), psutil.Process().cpu_times().user
    total, begun = Counter[str](), time.monotonic()

    def work(mine: list[bytes]) -> Counter[str]:
        found = Counter[str]()
        with httpx.Client(base_url=anywhere.url, timeout=30) as client:
            for body in mine:
                answer = client.post("/feedback", content=body)
                assert answer.status_code == 202, answer.text
                found += Counter({name: answer.json()[name] for name in RESULTS})
        return found

    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(work, [bodies[n::8] for n in range(8)]):
            total += found
    seconds = time.monotonic() - begun
    grown = max(one.memory_info().rss - was for one, was in zip(anywhere.workers(), before, strict=True)) / 2**20
    print(
        f"{1_000_000 / seconds:,.0f} events/s in {seconds:.1f} s, a worker grew by {grown:.0f} MiB; "
        f"seconds of CPU: workers {busy(anywhere) - used[0]:.1f}, "
        f"this client {psutil.Process().cpu_times().user - used[1]:.1f}"
    )
    assert total == Counter(accepted=850_000, duplicate=100_000, invalid=50_000)
    found_ = stored(anywhere)
    assert {f"{version} {name}": count for (version, name), count in found_.items() if name != "predictions"} == wanted
    assert 1_000_000 / seconds > 20_000
    assert grown < 100
