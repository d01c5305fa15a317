"""One simulation: sends synthetic users, tells their clicks, and gives the report that comes of it."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, TextIO, TypeVar, cast

from service.simulation.behaviour import SCENARIOS, VISITS, Scenario, Truth, Visit, clicks, visits
from service.simulation.gateway import Gateway, GatewayError
from service.traffic import Split

T = TypeVar("T")

EVENTS = 500
BAR = 30
# What was predicted is in the report a second later.
SETTLE_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class Wish:
    """What the command line asks for; without an experiment the running split is used as it is."""

    url: str
    scenario: str
    users: int
    experiment: str | None = None
    challenger: str | None = None
    lift: float = 0.1
    seed: int = 0
    runs: int = 1
    visits: float = VISITS
    threads: int = 4


def run(
    gateway: Gateway, wish: Wish, *, out: TextIO = sys.stderr, look: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Any]:
    """Simulate, and give the experiment's report; `look` gets those on the way there too. Raises GatewayError."""
    truth = prepare(gateway, wish)
    schema, begun = gateway.schema(truth.default), time.monotonic()
    coming = visits(truth, schema, wish.users, wish.seed, wish.visits)
    total = events = 0
    with ThreadPoolExecutor(wish.threads, thread_name_prefix="simulate") as pool:
        for group in _groups(coming, 50 * wish.threads):
            seeds = [f"{wish.seed}-{total + n}" for n in range(len(group))]
            answered = pool.map(lambda pair: _visit(gateway, truth, *pair), zip(group, seeds, strict=True))
            told = [event for found in answered for event in found]
            total, events = total + len(group), events + len(told)
            list(pool.map(gateway.feedback, _groups(told, EVENTS)))
            seen = int(group[-1].unit.rpartition("-")[2]) + 1
            if look is not None:
                look(gateway.report(truth.split.experiment))
            _show(out, seen, wish.users, f"{total} requests, {events} events, {time.monotonic() - begun:.0f} s")
    print(file=out)
    time.sleep(SETTLE_SECONDS)
    return gateway.report(truth.split.experiment)


def prepare(gateway: Gateway, wish: Wish) -> Truth:
    """The truth to simulate, the service's split set for it where an experiment is named."""
    document = gateway.models()
    default = document["default"]
    ready = [one["version"] for one in document["models"] if one["state"] == "ready" and one["version"] != default]
    weighted = [version for version in sorted(document["weights"]) if version != default]
    if default is None or not (ready if wish.experiment else weighted or wish.scenario == "leak"):
        raise GatewayError("a simulation needs two versions: load another (PUT /models/VERSION) and give it weight")
    challenger = wish.challenger or (weighted or ready or [""])[0]
    if wish.challenger not in (None, *ready):
        raise GatewayError(f"version '{wish.challenger}' is not ready beside the default '{default}'")
    if wish.experiment is not None:
        body: dict[str, Any] = {"weights": {default: 1, challenger: 1}, "coverage": 1, "experiment": wish.experiment}
        if wish.scenario == "leak":
            body |= {"weights": {default: 1}, "shadow": {"version": challenger, "fraction": 1.0}}
        document = gateway.put_weights({**body, "comment": f"simulation '{wish.scenario}'"})
    if wish.scenario == "leak":
        if document["shadow"] is None:
            raise GatewayError("the leak is seen in the shadow: name an --experiment, or set one (PUT /models/weights)")
        challenger = document["shadow"]["version"]
    split = Split(document["experiment"], tuple(document["weights"].items()), document["coverage"], default)
    return Truth(cast(Scenario, wish.scenario), default, challenger, split, wish.lift)


def lines(report: dict[str, Any], wish: Wish) -> Iterator[str]:
    """The report in a few lines."""
    verdict, srm = report["verdict"], report["srm"]
    yield f"experiment '{report['experiment']}', scenario '{wish.scenario}': {SCENARIOS[wish.scenario]}"
    for one in report["versions"]:
        lift = one["lift_interval"]
        shown = "" if lift is None else f", lift {one['lift']:+.1%} ({lift[0]:+.1%} to {lift[1]:+.1%})"
        rate = "none" if one["ctr"] is None else f"{one['ctr']:.2%}"
        counts = f"{one['units']} units, {one['impressions']} shown, {one['clicks']} clicks"
        yield f"  {one['version']}: {counts}, CTR {rate}{shown}"
    p = "" if srm["p"] is None else f" (p = {srm['p']:.2g})"
    yield f"  split: {srm['state']}{p}"
    if report["shadow"] is not None:
        leak = report["shadow"]["leak"]
        yield f"  shadow '{report['shadow']['version']}': leak {'; '.join([leak['state'], *leak['reasons']])}"
    yield f"verdict: {verdict['state']}. {verdict['text']}"


def _visit(gateway: Gateway, truth: Truth, visit: Visit, seed: str) -> list[dict[str, Any]]:
    """One request, and the events that come of its answer."""
    answer = gateway.predict({"instances": visit.instances, "unit_id": visit.unit})
    scores, prediction = answer["predictions"], answer["prediction_id"]
    chosen = clicks(truth, visit, answer["model_version"], scores, random.Random(seed).random)
    shown = [("impression", n) for n in range(len(scores))] + [("click", n) for n in chosen]
    return [{"prediction_id": prediction, "type": kind, "item_id": n} for kind, n in shown]


def _groups(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while group := list(islice(iterator, size)):
        yield group


def _show(out: TextIO, done: int, total: int, beside: str) -> None:
    """One line that grows, on a terminal; elsewhere nothing."""
    if out.isatty():
        full = round(BAR * done / total)
        print(f"\r{'#' * full}{'.' * (BAR - full)} {done}/{total} users, {beside}", end="", file=out, flush=True)
