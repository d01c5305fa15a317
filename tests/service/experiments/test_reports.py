"""Reports on demand, fresh or a few seconds old."""

import asyncio

from service.experiments.evidence import Evidence
from service.experiments.reports import Reports
from service.experiments.settings import ReportSettings
from tests.service.experiments.hand_made import two_arms
from tests.service.experiments.sources import ByHand


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def reports(clock: Clock, **more) -> Reports:
    return Reports(ByHand(two_arms(1, {"v1": 0.05, "v2": 0.05}, 5000)), ReportSettings(), clock=clock, **more)


def test_a_report_is_of_this_moment():
    async def main() -> None:
        made = reports(Clock())
        assert (await made.report("home-feed-7"))["experiment"] == "home-feed-7"
        await made.report("home-feed-7")
        assert made.source.asked == 2

    asyncio.run(main())


def test_scrapes_within_seconds_share_one_report():
    async def main() -> None:
        clock = Clock()
        made = reports(clock)
        await asyncio.gather(*(made.recent("home-feed-7") for _ in range(10)))
        clock.now += 4.9
        await made.recent("home-feed-7")
        assert made.source.asked == 1
        clock.now += 0.2
        await made.recent("home-feed-7")
        assert made.source.asked == 2

    asyncio.run(main())


def test_another_experiment_is_reported_at_once():
    async def main() -> None:
        made = reports(Clock())
        assert await made.recent("before") is None
        assert await made.recent("home-feed-7") is not None

    asyncio.run(main())


def test_shadow_and_plan_are_asked_with_the_same_evidence():
    async def shadow(evidence: Evidence) -> dict:
        return {"shadow of": evidence.experiment}

    async def plan(evidence: Evidence) -> dict:
        return {"plan of": evidence.experiment}

    async def main() -> None:
        found = await reports(Clock(), shadow=shadow, plan=plan).report("home-feed-7")
        assert (found["shadow"], found["plan"]) == ({"shadow of": "home-feed-7"}, {"plan of": "home-feed-7"})

    asyncio.run(main())
