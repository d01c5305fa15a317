"""Experiments without a difference, through the ledger that serves: ids, events, units and reports are the service's
own, and so is the split. Only HTTP is left out. Run with -s to see the counts."""

import asyncio
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from service.config import Settings
from service.experiments.ledger import Ledger
from service.experiments.report import report
from service.experiments.settings import ReportSettings
from service.state import StateStore

SHARES = {"v1": 1.0, "v2": 1.0}
SETTINGS = ReportSettings(planned=6_000)
MEAN_SHOWN = 10


async def users_come(ledger, document, rng, first, count):
    """New users ask once each, see some items and click a few, by rates of their own."""
    events, split = [], document.split()
    for number in range(first, first + count):
        unit, rate = f"u{number}", rng.beta(1.5, 28.5)
        given = split.assign(unit)
        ticket = ledger.open(document, given.version, given.reason, unit, rows=True)
        ledger.close(ticket, 200)
        for item in range(rng.geometric(1 / MEAN_SHOWN)):
            kinds = ("impression", "click") if rng.random() < rate else ("impression",)
            events += [{"prediction_id": ticket.prediction_id, "type": kind, "item_id": item} for kind in kinds]
    fed = await ledger.take(lambda: events)
    assert fed.recorded.accepted == len(events)
    await ledger.flush()


async def states(ledger, store, number, looks, users):
    """What the verdict was at each look at one experiment, and what was said of its split."""
    traffic = {"weights": SHARES, "default": "v1", "experiment": f"aa-{number}", "coverage": 1.0, "shadow": None}
    with store.transaction() as change:
        document = change.put_traffic({**traffic, "comment": ""}, who="test", undo=None)
    rng, found = np.random.default_rng(number), []
    for look in range(looks):
        await users_come(ledger, document, rng, look * users, users)
        evidence = await ledger.evidence(f"aa-{number}")
        told = report(evidence, settings=SETTINGS)
        found.append((told["verdict"]["state"], told["srm"]["state"]))
    assert sum(one["units"] for one in told["versions"]) == looks * users
    return found


def run(state, runs, looks, users):
    async def main():
        with StateStore.open(state) as store:
            async with Ledger(Settings(), store) as ledger:
                return [await states(ledger, store, number, looks, users) for number in range(runs)]

    return asyncio.run(main())


def test_an_experiment_without_a_difference_collects_through_the_ledger(any_state):
    (found,) = run(any_state, 1, 5, 40)
    assert set(found) <= {("collecting", "collecting"), ("collecting", "ok")}


@pytest.mark.slow
def test_few_of_200_experiments_without_a_difference_are_ever_judged_at_100_looks(state):
    found = run(state, 200, 100, 12)
    ever = [{verdict for verdict, _ in looks} for looks in found]
    srm = [{split for _, split in looks} for looks in found]
    for what, hits in (
        ("better or worse", [bool(one & {"better", "worse"}) for one in ever]),
        ("broken", ["broken" in one for one in ever]),
        ("split warning", [bool(one & {"warning", "mismatch"}) for one in srm]),
    ):
        interval = stats.binomtest(sum(hits), len(hits)).proportion_ci()
        print(f"A/A through the ledger, {what}: {sum(hits)} of {len(hits)} ({interval.low:.1%} to {interval.high:.1%})")
    print("verdicts at the last look:", Counter(looks[-1][0] for looks in found))
    assert sum(bool(one & {"better", "worse"}) for one in ever) <= 10
    assert not any("broken" in one for one in ever)
