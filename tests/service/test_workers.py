"""The supervisor and its workers: real processes, a real socket, real signals."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from tests.e2e.server import workers_of


class Running:
    """A `python -m service serve` and the JSON lines it has written."""

    def __init__(self, process, log):
        self.process, self.log = process, log

    def events(self, name=None):
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if name in (None, line["event"])]

    @property
    def url(self):
        self.until(lambda: self.events("listening"))
        return self.events("listening")[0]["url"]

    def until(self, condition, seconds=40):
        ends = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < ends, self.log.read_text()
            time.sleep(0.05)
        return found

    def until_ready(self):
        self.until(lambda: status(f"{self.url}/readyz") == 200)

    def workers(self):
        return workers_of(self.process.pid)


def status(url):
    try:
        return httpx.get(url, timeout=5).status_code
    except httpx.TransportError:
        return None


@contextmanager
def serving(artifacts, folder, *options, **environment):
    log = folder / "log"
    command = [sys.executable, "-m", "service", "serve", "--artifacts", str(artifacts), "--port", "0"]
    command += ["--state", f"sqlite:///{folder}/state.db", "--threads", "1", *options]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **environment})
    running = Running(process, log)
    try:
        yield running
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


@pytest.fixture(scope="module", name="service")
def _service(published, tmp_path_factory):
    """Two workers that any test may talk to, or kill one of."""
    with serving(published, tmp_path_factory.mktemp("service"), "--workers", "2", "--load", "all") as running:
        running.until_ready()
        yield running


def test_each_worker_is_a_process_on_one_socket_and_logs_its_threads(service):
    assert len(service.workers()) == 2
    assert {line["threads"] for line in service.events("worker starts")} == {1}
    assert service.events("listening")[0]["workers"] == 2


def test_op02_the_supervisor_has_one_thread_and_its_workers_share_what_it_imported(service):
    supervisor = psutil.Process(service.process.pid)
    assert supervisor.num_threads() == 1
    assert not service.events("forking beside a thread")
    shared = [worker.memory_full_info().pss for worker in service.workers()]
    assert max(shared) < 0.75 * supervisor.memory_info().rss


def test_a_command_that_does_not_serve_imports_no_torch_and_no_web_framework():
    code = (
        "import sys, service.__main__, service.workers.preload\n"
        "print([m for m in ('torch', 'numpy', 'fastapi', 'uvicorn', 'starlette') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_the_service_imports_no_scikit_learn(service):
    for process in [psutil.Process(service.process.pid), *service.workers()]:
        assert not [mapped.path for mapped in process.memory_maps() if "sklearn" in mapped.path]


def test_a_killed_worker_is_replaced_by_one_with_the_current_split(service):
    httpx.put(f"{service.url}/models/weights", json={"weights": {"v1": 1}}).raise_for_status()
    victim, survivor = service.workers()
    victim.kill()
    service.until(lambda: {line["pid"] for line in service.events("version ready")} - {victim.pid, survivor.pid})
    [newcomer] = {line["pid"] for line in service.events("version ready")} - {victim.pid, survivor.pid}
    ready = {line["version"] for line in _ready_lines(service, newcomer)}
    assert ready == {"v1", "v2", "v3"}
    answers = [predict(service.url) for _ in range(30)]
    assert {answer.json()["model_version"] for answer in answers} == {"v1"}
    [died] = [line for line in service.events("worker died") if line["dead"] == victim.pid]
    assert died["exit"] == -signal.SIGKILL


def _ready_lines(service, pid):
    def lines():
        found = [line for line in service.events("version ready") if line["pid"] == pid]
        return found if len(found) == 3 else None

    return service.until(lines)


def test_me01_a_dead_workers_gauges_go_and_its_row_with_them(service):
    victim = service.workers()[0]
    victim.kill()
    service.until(lambda: victim.pid not in [worker.pid for worker in service.workers()])
    service.until(lambda: victim.pid not in told_pids(service))
    service.until(lambda: gauge(service.url, "twinrank_workers") == 2)
    assert gauge(service.url, "twinrank_in_flight") == 0


def told_pids(service):
    with closing(sqlite3.connect(service.log.parent / "state.db")) as db:
        return {pid for (pid,) in db.execute("SELECT pid FROM workers")}


def predict(url):
    return httpx.post(f"{url}/predict", json={"instances": [{"age": 30}], "unit_id": "u1"}, timeout=10)


def gauge(url, name):
    lines = httpx.get(f"{url}/metrics", timeout=10).text.splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_signal_drains_and_exits_0_leaving_nothing(published, tmp_path, number):
    with serving(published, tmp_path, "--workers", "1") as running:
        running.until_ready()
        workers = running.workers()
        running.process.send_signal(number)
        assert running.process.wait(20) == 0
        assert not any(worker.is_running() for worker in workers)
        assert [line["event"] for line in running.events()[-2:]] == ["version unloaded", "stopped"]


class HalfSent:
    """A prediction whose body is on its way: a request in flight for as long as a test wants."""

    BODY = b'{"instances": [{"age": 30}]}'

    def __init__(self, url):
        host, port = url.removeprefix("http://").split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(self.BODY)}\r\n\r\n"
        self.socket.sendall(head.encode() + self.BODY[:10])

    def finish(self):
        self.socket.sendall(self.BODY[10:])
        answer = self.socket.recv(65536)
        self.socket.close()
        return answer.split(b"\r\n")[0]


def test_a_request_in_flight_is_answered_while_readiness_says_draining(published, tmp_path):
    with serving(published, tmp_path, "--workers", "1") as running:
        running.until_ready()
        half = HalfSent(running.url)
        running.until(lambda: gauge(running.url, "twinrank_in_flight") == 1)
        running.process.send_signal(signal.SIGTERM)
        running.until(lambda: status(f"{running.url}/readyz") == 503)
        assert httpx.get(f"{running.url}/readyz").json()["reason"] == "draining"
        assert status(f"{running.url}/livez") == 200
        assert predict(running.url).status_code == 503
        assert half.finish() == b"HTTP/1.1 200 OK"
        assert running.process.wait(20) == 0


def test_draining_lasts_no_longer_than_it_may(published, tmp_path):
    with serving(published, tmp_path, "--workers", "1", "--drain-seconds", "1") as running:
        running.until_ready()
        half = HalfSent(running.url)
        running.until(lambda: gauge(running.url, "twinrank_in_flight") == 1)
        begun = time.monotonic()
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(20) == 0
        assert time.monotonic() - begun < 6
        half.socket.close()


def test_a_second_signal_kills(published, tmp_path):
    with serving(published, tmp_path, "--workers", "1") as running:
        running.until_ready()
        half = HalfSent(running.url)
        running.until(lambda: gauge(running.url, "twinrank_in_flight") == 1)
        running.process.send_signal(signal.SIGTERM)
        running.until(lambda: status(f"{running.url}/readyz") == 503)
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(5) == 1
        half.socket.close()


def test_workers_go_when_their_supervisor_is_killed(published, tmp_path):
    with serving(published, tmp_path, "--workers", "2", "--drain-seconds", "2") as running:
        running.until_ready()
        workers = running.workers()
        running.process.kill()
        _, alive = psutil.wait_procs(workers, timeout=10)
        assert alive == []


def test_a_signal_before_anybody_is_ready_ends_it_too(published, tmp_path):
    with serving(published, tmp_path, "--workers", "2") as running:
        running.until(lambda: running.events("listening"))
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(20) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_imports_ends_it_before_it_begins(published, tmp_path, number):
    with serving(published, tmp_path, "--workers", "2") as running:
        maps = Path(f"/proc/{running.process.pid}/maps")
        running.until(lambda: "libtorch" in maps.read_text())
        running.process.send_signal(number)
        assert running.process.wait(20) == 0
        assert [line["event"] for line in running.events()] == ["draining", "stopped"]
        assert "Traceback" not in running.log.read_text()


def fails(artifacts, folder, *options, **environment):
    """(exit code, what it says) of a service that cannot start."""
    with serving(artifacts, folder, *options, **environment) as running:
        code = running.process.wait(60)
    return code, [line for line in running.log.read_text().splitlines() if not line.startswith("{")]


def test_a_port_in_use_is_one_plain_line(published, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, [line] = fails(published, tmp_path, "--port", port)
    assert code == 1
    assert f"--port: cannot listen on 127.0.0.1:{port}: Address already in use" in line


@pytest.mark.parametrize(
    ("options", "says", "expected"),
    [
        (["--host", "203.0.113.7"], "--host: cannot listen on 203.0.113.7:0", 1),
        (["--state", "sqlite:////nowhere/at/all.db"], "--state: cannot use sqlite:////nowhere/at/all.db", 1),
        (["--artifacts", "/nowhere"], "--artifacts: there is no folder '/nowhere'", 1),
        (["--workers", "none"], "--workers: 'none' is not a whole number", 2),
        (["--fallback", "default"], "--fallback: not built yet", 2),
    ],
)
def test_a_wrong_option_is_one_plain_line(published, tmp_path, options, says, expected):
    code, [line] = fails(published, tmp_path, *options)
    assert (code, line.startswith(f"python -m service serve: {says}")) == (expected, True), line


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--weights", "v9=1"], "--weights: no version 'v9' in"),
        (["--device", "cuda"], "--device: no usable CUDA device"),
    ],
)
def test_what_only_a_worker_can_find_out_is_one_plain_line_too(published, tmp_path, options, says):
    if "cuda" in options:
        import torch

        if torch.cuda.is_available():
            pytest.skip("there is a CUDA device here")
    code, [line] = fails(published, tmp_path, "--workers", "2", *options)
    assert (code, line.startswith(f"python -m service serve: {says}")) == (1, True), line
