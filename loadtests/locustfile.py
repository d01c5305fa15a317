"""A gateway's load: rankings of 100 and of 500 candidates and single rows, while an operator switches weights.

    locust -f loadtests/locustfile.py --headless --only-summary --stop-timeout 5 \
        -H http://127.0.0.1:8080 -u 9 -r 9 -t 60s --rate 10

Every answer is checked (answers.py) and counted once (tally.py). Exits with 1 where more than --max-failed percent
failed or nothing was sent. Runs in one process, without locust's workers. Name `Gateway` last to leave the rest out.
"""

import json
import os
import sys
import time
from argparse import ArgumentParser
from itertools import count, cycle
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import gevent
from answers import fault
from bodies import Bodies, read_items, union
from locust import FastHttpUser, constant, constant_throughput, events, task
from locust.env import Environment
from locust.exception import StopUser
from tally import Tally, text

SWITCH = "switch"


class Run:
    """What the users of this run share: the tally, the bodies, the number of requests still to send."""

    def __init__(self, environment: Environment) -> None:
        self.options = environment.parsed_options
        self.tally = Tally()
        self.tickets = count(1)
        self.bodies: Bodies | None = None
        self.document: dict[str, Any] = {}
        self.started = 0.0

    def learn(self, host: str) -> None:
        """Reads the versions and their schemas; OSError or ValueError where the service does not answer with them."""
        self.document = _get(f"{host}/models")
        ready = [model["version"] for model in self.document["models"] if model["state"] == "ready"]
        schemas = [_get(f"{host}/models/{version}")["schema"] for version in ready]
        self.bodies = Bodies(union(schemas), read_items(self.options.items), seed=self.options.seed)

    def take_ticket(self) -> None:
        if self.options.requests and next(self.tickets) > self.options.requests:
            raise StopUser

    def count_answer(self, name: str, response_time: float, exception: Exception | None, **_: Any) -> None:
        self.tally.add(name, response_time, None if exception is None else str(exception))

    def report(self, gateways: int) -> dict[str, Any]:
        rate = self.options.rate
        seconds = max(time.monotonic() - self.started, 1e-9)
        offered = rate * gateways if rate else None
        return self.tally.report(seconds=seconds, offered_per_second=offered, beside={SWITCH})


def _get(url: str) -> dict[str, Any]:
    with urlopen(url, timeout=10) as response:
        return json.load(response)


@events.init_command_line_parser.add_listener
def _options(parser: ArgumentParser) -> None:
    parser.add_argument("--rate", type=float, default=0, help="requests/s of one gateway user; 0: no pause")
    parser.add_argument("--requests", type=int, default=0, help="stop after so many predictions; 0: by time alone")
    parser.add_argument("--items", default="1000", help="a file with one item id a line, or n for the ids 1 to n")
    parser.add_argument("--switch-seconds", type=float, default=1.0, help="pause between two switches of weights")
    parser.add_argument("--max-failed", type=float, default=0.0, help="percent of failed requests that is let pass")
    parser.add_argument("--seed", type=int, default=None, help="draws the same users and candidates again")
    parser.add_argument("--report", default="", help="also write the report as JSON to this file")


@events.init.add_listener
def _set_up(environment: Environment, **_: Any) -> None:
    run = Run(environment)
    try:
        run.learn(environment.host)
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"cannot read the versions from {environment.host}/models: {error!r}")
    environment.run = run
    Gateway.wait_time = constant_throughput(run.options.rate) if run.options.rate else constant(0)
    Operator.wait_time = constant(run.options.switch_seconds)
    environment.events.request.add_listener(run.count_answer)


@events.test_start.add_listener
def _start_clock(environment: Environment, **_: Any) -> None:
    environment.run.started = time.monotonic()


@events.test_stop.add_listener
def _judge(environment: Environment, **_: Any) -> None:
    run = environment.run
    gateways = environment.parsed_options.num_users or 1
    gateways -= sum(user.fixed_count for user in environment.user_classes)
    report = run.report(gateways)
    print(text(report))
    if run.options.report:
        Path(run.options.report).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    too_many = report["failed"] * 100 > run.options.max_failed * report["requests"]
    environment.process_exit_code = 1 if too_many or not report["requests"] else 0


class Gateway(FastHttpUser):
    """Sends what a gateway sends and believes no answer unread."""

    @task(6)
    def rank_100(self) -> None:
        self.predict("ranking 100", 100)

    @task(2)
    def rank_500(self) -> None:
        self.predict("ranking 500", 500)

    @task(2)
    def one_row(self) -> None:
        self.predict("one row", 0)

    def predict(self, name: str, candidates: int) -> None:
        run: Run = self.environment.run
        run.take_ticket()
        body = run.bodies.ranking(candidates) if candidates else run.bodies.rows(1)
        with self.client.post("/predict", name=name, json=body, catch_response=True) as response:
            version = (response.headers or {}).get("X-Model-Version")
            reason = fault(response.status_code, version, response.content or b"", candidates or 1)
            response.failure(reason) if reason else response.success()
        if run.options.requests and run.tally.requests >= run.options.requests:
            gevent.spawn(self.environment.runner.quit)  # from outside: quit waits for this user to end


class Operator(FastHttpUser):
    """Moves the weights to and fro between the versions that had weight at the start, and puts them back at the end."""

    fixed_count = 1

    def on_start(self) -> None:
        document = self.environment.run.document
        token = os.environ.get("TWINRANK_ADMIN_TOKEN")
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.weights = {name: weight for name, weight in document["weights"].items() if weight}
        names = list(self.weights)
        self.turns = cycle([{name: 90 if name == heavy else 10 for name in names} for heavy in names])

    @task
    def switch(self) -> None:
        self.put(next(self.turns))

    def on_stop(self) -> None:
        self.put(self.weights)

    def put(self, weights: dict[str, float]) -> None:
        body = {"weights": weights, "comment": "load test"}
        with self.client.put(
            "/models/weights", name=SWITCH, json=body, headers=self.headers, catch_response=True
        ) as response:
            if response.status_code != 200:
                response.failure(f"status {response.status_code}")
            elif response.json().get("weights") != weights:
                response.failure("the answer's weights differ")
            else:
                response.success()
