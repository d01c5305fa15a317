"""Plans on a real service of two workers, under a challenger that fails or is slow on some requests: one action, soon.

How soon is measured from the moment at which what the client itself has seen would trip the guardrail.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
import torch

from service.experiments.guardrails import ArmCounts, Guardrails, Heard, Signs, tripped
from service.scoring.encoded import Encoded
from service.scoring.features import FeatureEncoder
from service.scoring.publish import Draft, publish
from service.traffic import Split
from tests.e2e.server import Service, serving
from tests.tiny import TinyModule, rows, save_scripted, tiny_encoder

# Users of whom a version may fail, or be slow: each is one request in twenty.
USERS = [f"x{n}" for n in range(20)]
BOUND_MS = 150.0
SECONDS = 60.0


class Troubled(TinyModule):
    """Gives no number for some users, and takes its time for others."""

    def __init__(self, encoder: FeatureEncoder, failing: list[str], slow: list[str], rounds: int) -> None:
        super().__init__(encoder, seed=1, constant=0.3)
        self.register_buffer("failing", ids_of(encoder, failing))
        self.register_buffer("slow", ids_of(encoder, slow))
        self.rounds = rounds

    def forward(
        self,
        numerics: torch.Tensor,
        ids: torch.Tensor,
        bag_values: list[torch.Tensor],
        bag_offsets: list[torch.Tensor],
    ) -> torch.Tensor:
        scores = torch.full((ids.size(0),), 0.3)
        if bool(torch.isin(ids[:, 0], self.slow).any()):
            work = torch.eye(128)
            for _ in range(self.rounds):
                work = torch.mm(work, work)
            scores = scores + 0.0 * work[0, 1]
        return torch.where(torch.isin(ids[:, 0], self.failing), torch.full_like(scores, float("nan")), scores)


def ids_of(encoder: FeatureEncoder, users: list[str]) -> torch.Tensor:
    if not users:
        return torch.full((1,), -1, dtype=torch.int64)
    assert encoder.layout.ids[0].name == "user_id"
    return torch.tensor([int(encoder.encode_rows([{"user_id": user}]).ids[0, 0]) for user in users])


def rounds_for(seconds: float) -> int:
    """So many products of matrices take about that long."""
    work, count, begun = torch.eye(128), 0, time.perf_counter()
    while time.perf_counter() - begun < 0.3:
        work, count = torch.mm(work, work), count + 1
    return round(count * seconds / 0.3)


def publish_troubled(
    root: Path, version: str, *, failing: list[str] | None = None, slow: list[str] | None = None, rounds: int = 0
) -> None:
    known = [{"user_id": user, "age": 30} for user in USERS]
    encoder = tiny_encoder(item=None, table=pa.Table.from_pylist([*rows(), *rows(users=known)]))
    module = Troubled(encoder, failing or [], slow or [], rounds).eval()
    sample = {"instances": rows()[::40]}

    def scored(encoded: Encoded) -> list[float]:
        with torch.inference_mode():
            return [
                float(one) for one in module(torch.from_numpy(encoded.numerics), torch.from_numpy(encoded.ids), [], [])
            ]

    draft = Draft(
        version=version,
        save_module=lambda path: save_scripted(module, path),
        encoder=encoder,
        catalog=None,
        requests=[sample],
        scores=[scored(encoder.encode_rows(sample["instances"]))],
        manifest={"metrics": {"valid": {"auc": 0.5}, "test": {"auc": 0.5}}},
    )
    publish(root, draft)


@pytest.fixture(scope="module", name="running")
def _running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """`steady` fails for one user in twenty, `failing` for those three times as many, `slow` is it for two of them."""
    torch.set_num_threads(1)
    artifacts = tmp_path_factory.mktemp("troubled")
    publish_troubled(artifacts, "steady", failing=USERS[:1])
    publish_troubled(artifacts, "failing", failing=USERS[:3])
    publish_troubled(artifacts, "slow", failing=USERS[:1], slow=USERS[5:7], rounds=rounds_for(1.3 * BOUND_MS / 1e3))
    options = ("--workers", "2", "--load", "all", "--weights", "steady=1", "--threads", "1")
    with serving(artifacts, tmp_path_factory.mktemp("planned"), *options) as service:
        yield service


@dataclass
class Client:
    """Asks until told to end, and keeps what it sees of each arm."""

    service: Service
    split: Split
    version: str
    guardrails: Guardrails
    arms: dict[bool, ArmCounts] = field(default_factory=lambda: {True: ArmCounts(), False: ArmCounts()})
    sufficed: float | None = None
    ended: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, first: int, step: int) -> None:
        with httpx.Client(base_url=self.service.url, timeout=30) as client:
            number = first
            while not self.ended.is_set():
                body = {
                    "instances": [{"user_id": USERS[number // step % len(USERS)], "age": 30}],
                    "unit_id": f"u{number}",
                }
                begun = time.monotonic()
                status = client.post("/predict", json=body).status_code
                self.saw(f"u{number}", status, time.monotonic() - begun)
                number += step

    def saw(self, unit: str, status: int, seconds: float) -> None:
        mine = self.split.assign(unit).version == self.version
        with self.lock:
            had = self.arms[mine]
            late = seconds > (self.guardrails.p99_ms or float("inf")) / 1e3
            self.arms[mine] = ArmCounts(had.requests + 1, had.errors + (status == 500), had.timed + 1, had.slow + late)
            signs = Signs(0.5, self.arms[True], self.arms[False], had.requests, Heard())
            if self.sufficed is None and tripped(self.guardrails, signs):
                self.sufficed = time.monotonic()


def under_a_plan(service: Service, version: str, guardrails: dict[str, Any]) -> tuple[Client, float, dict[str, Any]]:
    """(what a client saw, seconds from there to the rollback, the plan then) of a version at half of the traffic."""
    name = f"plan-{version}"
    split = {"weights": {"steady": 1, version: 1}, "coverage": 1, "default": "steady", "experiment": name}
    assert service.put("/models/weights", split).status_code == 200
    plan = {"version": version, "steps": [{"coverage": 1.0, "seconds": 3600}], "guardrails": guardrails}
    assert service.put(f"/experiments/{name}/plan", plan).status_code == 200
    client = Client(
        service, Split(name, (("steady", 1.0), (version, 1.0)), 1.0, "steady"), version, Guardrails(**guardrails)
    )
    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(client.ask, first, 4) for first in range(4)]
        try:
            state = until(lambda: httpx.get(f"{service.url}/experiments/{name}/plan", timeout=10).json())
        finally:
            seen = time.monotonic()
            client.ended.set()
        for one in asking:
            one.result()
    assert client.sufficed is not None
    return client, seen - client.sufficed, state


def until(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    ends = time.monotonic() + SECONDS
    while (found := ask())["state"] != "rolled_back":
        assert time.monotonic() < ends, found
        time.sleep(0.05)
    return found


def check_one_action(service: Service, version: str, why: str) -> None:
    time.sleep(3)  # long enough for another worker to act too
    document = httpx.get(f"{service.url}/models", timeout=10).json()
    assert document["weights"] == {"steady": 1}
    history = httpx.get(f"{service.url}/models/weights/history", timeout=10).json()["history"]
    acted = [one for one in history if one["to"]["experiment"] == f"plan-{version}" and one["who"] == "plan"]
    (rollback,) = [one for one in acted if version not in one["to"]["weights"]]
    assert rollback["comment"].startswith(f"plan: guardrail {why}")
    assert rollback["epoch"] == document["epoch"]
    assert rollback["when"]


def test_three_times_the_errors_are_rolled_back_by_one_worker_within_5_s(running: Service) -> None:
    client, seconds, plan = under_a_plan(running, "failing", {"errors": True})
    print(
        f"failing: {client.arms[True]} against {client.arms[False]}, rolled back {seconds:.2f} s later: {plan['why']}"
    )
    assert seconds < 5
    assert plan["why"].startswith("errors: ")
    check_one_action(running, "failing", "errors: ")


def test_a_p99_30_percent_over_its_bound_is_rolled_back_by_one_worker_within_5_s(running: Service) -> None:
    client, seconds, plan = under_a_plan(running, "slow", {"errors": True, "p99_ms": BOUND_MS})
    print(f"slow: {client.arms[True]} against {client.arms[False]}, rolled back {seconds:.2f} s later: {plan['why']}")
    assert seconds < 5
    assert plan["why"].startswith("p99: ")
    check_one_action(running, "slow", "p99: ")
