"""/experiments over HTTP, on a real worker whose evidence was made by hand."""

import asyncio
import io

import pyarrow.csv
import pyarrow.parquet
import pytest

from service.experiments.evidence import Evidence
from service.experiments.reports import Reports
from service.experiments.settings import ReportSettings
from service.state import StateError
from tests.service.experiments.hand_made import arm, epoch, evidence, two_arms
from tests.service.experiments.sources import ByHand
from tests.service.workplace import Worker, settings, worker

FOUND = two_arms(4, {"v1": 0.05, "v2": 0.08}, 50_000)


@pytest.fixture(name="ask")
def _ask(artifacts, tmp_path):
    """Runs a check on a worker that knows the given evidence."""

    def run(check, *known: Evidence) -> None:
        async def main() -> None:
            config = settings(artifacts, tmp_path / "state.db", weights={"v1": 90.0, "v2": 10.0}, load="none")
            async with worker(config) as one:
                one.state["reports"] = Reports(ByHand(*known), ReportSettings())
                await check(one)

        asyncio.run(main())

    return run


def gauges(scrape: str, name: str) -> dict[str, float]:
    lines = [line.split() for line in scrape.splitlines() if line.startswith(f"twinrank_{name}")]
    return {key: float(value) for key, value in lines}


def test_an_experiment_is_reported_with_its_verdict(ask):
    async def check(one: Worker) -> None:
        answer = await one.get("/experiments/home-feed-7")
        assert answer.status_code == 200
        body = answer.json()
        assert (body["verdict"]["state"], body["verdict"]["version"]) == ("better", "v2")
        assert [version["version"] for version in body["versions"]] == ["v1", "v2"]
        assert (body["shadow"], body["plan"]) == (None, None)

    ask(check, FOUND)


def test_experiments_are_listed(ask):
    async def check(one: Worker) -> None:
        listed = (await one.get("/experiments")).json()
        assert listed == {
            "experiments": [
                {"experiment": "default", "current": True},
                {"experiment": "home-feed-7", "current": False},
            ]
        }

    ask(check, FOUND, Evidence("default", "v1", ()))


@pytest.mark.parametrize("path", ["home-feed-8", "home-feed-8/export", "..%2Fx", "a" * 5000])
def test_an_unknown_experiment_is_404(ask, path: str):
    async def check(one: Worker) -> None:
        answer = await one.get(f"/experiments/{path}")
        assert answer.status_code == 404
        assert len(answer.content) < 1000

    ask(check, FOUND)


def test_the_nearest_name_is_offered(ask):
    async def check(one: Worker) -> None:
        assert "home-feed-7" in (await one.get("/experiments/home-fed-7")).json()["detail"]

    ask(check, FOUND)


def test_the_cells_are_exported_in_either_format(ask):
    async def check(one: Worker) -> None:
        csv = await one.get("/experiments/home-feed-7/export")
        parquet = await one.get("/experiments/home-feed-7/export?format=parquet")
        assert csv.headers["content-type"] == "text/csv; charset=utf-8"
        assert parquet.headers["content-disposition"] == 'attachment; filename="home-feed-7.parquet"'
        tables = [
            pyarrow.csv.read_csv(io.BytesIO(csv.content)),
            pyarrow.parquet.read_table(io.BytesIO(parquet.content)),
        ]
        assert [table.num_rows for table in tables] == [512, 512]
        assert (await one.get("/experiments/home-feed-7/export?format=xlsx")).status_code == 422

    ask(check, FOUND)


def test_a_scrape_shows_the_figures_of_the_running_experiment(ask):
    async def check(one: Worker) -> None:
        report = (await one.get("/experiments/default")).json()
        scrape = (await one.get("/metrics")).text
        (_, second) = report["versions"]
        assert gauges(scrape, "experiment_lift{") == {
            'twinrank_experiment_lift{version="v2"}': pytest.approx(second["lift"])
        }
        assert gauges(scrape, "experiment_lift_low") == {
            'twinrank_experiment_lift_low{version="v2"}': pytest.approx(second["lift_interval"][0])
        }
        assert gauges(scrape, "experiment_lift_high") == {
            'twinrank_experiment_lift_high{version="v2"}': pytest.approx(second["lift_interval"][1])
        }
        assert gauges(scrape, "experiment_srm_p") == {"twinrank_experiment_srm_p": pytest.approx(report["srm"]["p"])}
        assert len(gauges(scrape, "experiment_ctr")) == 2
        assert gauges(scrape, "online_auc") == {}

    ask(check, Evidence("default", "v1", FOUND.epochs))


def test_a_scrape_before_anything_was_counted_is_whole(ask):
    async def check(one: Worker) -> None:
        scrape = await one.get("/metrics")
        assert scrape.status_code == 200
        assert gauges(scrape.text, "experiment_lift{") == {}

    ask(check, evidence(epoch(arm("v1", 1.0))))


def test_a_scrape_outlives_the_store(ask):
    class Gone(ByHand):
        async def evidence(self, name: str) -> None:
            raise StateError("the disk is gone")

    async def check(one: Worker) -> None:
        one.state["reports"] = Reports(Gone(), ReportSettings())
        assert (await one.get("/metrics")).status_code == 200
        assert (await one.get("/experiments/default")).status_code == 503

    ask(check)
