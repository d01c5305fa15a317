"""The load test counts what went wrong as it was: held against a small server that fails in known ways."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import pytest

LOCUSTFILE = Path(__file__).resolve().parents[2] / "loadtests" / "locustfile.py"
SCHEMA = {
    "features": [
        {"name": "age", "kind": "numeric", "side": "user"},
        {"name": "genres", "kind": "multi", "side": "item"},
        {"name": "shown_at", "kind": "datetime", "side": "context"},
    ],
    "crosses": [],
    "unit": "user_id",
    "item": "item_id",
}
Answer = tuple[int, dict[str, Any] | str]


def right(body: dict[str, Any]) -> Answer:
    rows = len(body.get("candidates") or body["instances"])
    return 200, {"model_version": "v1", "predictions": [0.25] * rows}


@contextmanager
def service(answer: Callable[[int, dict[str, Any]], Answer]) -> Iterator[str]:
    """A server that gives request number n (from 0) of /predict the answer(n, body)."""
    numbers = count()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            listing = {"models": [{"version": "v1", "state": "ready"}], "weights": {"v1": 1}}
            self.send(200, {"schema": SCHEMA} if self.path == "/models/v1" else listing)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send(*answer(next(numbers), body))

        def send(self, status: int, body: dict[str, Any] | str) -> None:
            data = (body if isinstance(body, str) else json.dumps(body)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("X-Model-Version", "v1")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def load(host: str, tmp_path: Path, *options: str) -> tuple[int, str, dict[str, Any]]:
    """Exit code, printed text and JSON report of 100 requests."""
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless", "--only-summary", "-H", host]
    command += ["-u", "1", "-t", "60s", "--stop-timeout", "5", "--requests", "100", "--report", str(report), *options]
    done = subprocess.run([*command, "Gateway"], capture_output=True, text=True, timeout=90, check=False)
    assert report.exists(), done.stdout + done.stderr
    return done.returncode, done.stdout, json.loads(report.read_text())


def fails_23(number: int, body: dict[str, Any]) -> Answer:
    return (500, {"detail": "broken"}) if number % 100 < 23 else right(body)


def test_op03_23_failures_of_100_are_23_percent(tmp_path: Path):
    with service(fails_23) as host:
        code, printed, report = load(host, tmp_path)
    assert code == 1
    assert "100 requests" in printed
    assert "23 failed: 23.0 %" in printed
    assert (report["requests"], report["failed"], report["failed_percent"]) == (100, 23, 23.0)


@pytest.mark.parametrize(("threshold", "code"), [("22.9", 1), ("23", 0)])
def test_op03_the_exit_code_follows_the_threshold(tmp_path: Path, threshold: str, code: int):
    with service(fails_23) as host:
        assert load(host, tmp_path, "--max-failed", threshold)[0] == code


def test_op03_wrong_bodies_with_status_200_are_failures(tmp_path: Path):
    def answer(number: int, body: dict[str, Any]) -> Answer:
        status, good = right(body)
        assert isinstance(good, dict)
        scores = good["predictions"]
        wrong: dict[int, dict[str, Any] | str] = {
            0: {"error": "model not found"},
            1: good | {"predictions": scores[1:]},
            2: good | {"model_version": "v2"},
            3: good | {"predictions": [1.5, *scores[1:]]},
            4: '{"model_version": "v1", "predictions": [NaN]}',
            5: "<html>",
        }
        return status, wrong.get(number % 20, good)

    with service(answer) as host:
        code, _, report = load(host, tmp_path)
    assert code == 1
    assert report["failed_percent"] == 30.0
    reasons = {reason.partition(": ")[2] for reason in report["reasons"]}
    assert reasons == {
        "no predictions in the body",
        "wrong number of scores",
        "model_version differs from the header",
        "a score is no probability",
        "body is no JSON",
    }


def test_op03_offered_and_achieved_rate_stand_side_by_side(tmp_path: Path):
    with service(lambda _, body: right(body)) as host:
        code, printed, report = load(host, tmp_path, "--rate", "50")
    assert code == 0
    assert report["offered_per_second"] == 50
    assert 0 < report["achieved_per_second"] <= 52
    assert "offered 50.0/s, achieved" in printed


def test_a_service_that_is_not_there_is_no_success():
    command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless", "-H", "http://127.0.0.1:9"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert "cannot read the versions from http://127.0.0.1:9/models" in done.stderr
