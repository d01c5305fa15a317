"""Readiness, liveness and the doors of a real service."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.scoring.device import allowed_cores
from tests.e2e.server import Service, free_port, serving

ROW = {"instances": [{"user_id": "u1", "age": 33}]}


def test_li01_without_a_version_the_service_lives_but_is_not_ready(tmp_path: Path) -> None:
    (tmp_path / "artifacts").mkdir()
    with serving(tmp_path / "artifacts", tmp_path / "state", ready=False) as service:
        assert httpx.get(service.url + "/livez").status_code == 200
        ready = httpx.get(service.url + "/readyz")
        assert ready.status_code == 503
        assert "no version has weight" in ready.text
        refused = service.predict(ROW)
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        assert httpx.get(service.url + "/models").json()["models"] == []


def test_li01_a_corrupt_version_with_weight_keeps_the_service_unready_and_says_why(
    tiny_artifacts: Path, tmp_path: Path
) -> None:
    root = tmp_path / "artifacts"
    shutil.copytree(tiny_artifacts, root)
    (root / "v2" / "model.pt").write_bytes(b"")
    options = ("--load", "all", "--weights", "v1=50,v2=50", "--workers", "2")
    with serving(root, tmp_path / "state", *options, ready=False) as service:
        ends = time.monotonic() + 30
        while True:
            states = {one["version"]: one for one in httpx.get(service.url + "/models").json()["models"]}
            if states["v2"]["state"] == "failed" and states["v1"]["state"] == "ready":
                break
            assert time.monotonic() < ends, states
            time.sleep(0.1)
        assert "model.pt" in states["v2"]["error"]
        ready = httpx.get(service.url + "/readyz")
        assert ready.status_code == 503
        assert "v2" in ready.text
        codes = {service.predict({"instances": [{"user_id": f"u{n}"}]}).status_code for n in range(40)}
        assert codes == {200, 503}


def test_li01_the_first_requests_after_ready_are_as_fast_as_the_rest(tiny_artifacts: Path, tmp_path: Path) -> None:
    with serving(tiny_artifacts, tmp_path) as service, httpx.Client(base_url=service.url) as client:
        client.get("/livez")

        def timed(_: int) -> float:
            started = time.perf_counter()
            assert client.post("/predict", json=ROW).status_code == 200
            return time.perf_counter() - started

        first = [timed(n) for n in range(5)]
        rest = [timed(n) for n in range(100)]
        # The client's own first request pays for its connection; five hundredths of a second are noise here.
        assert statistics.median(first) <= 3 * statistics.median(rest) + 0.05


def test_li04_health_and_metrics_answer_while_the_model_works(tiny_artifacts: Path, tmp_path: Path) -> None:
    heavy: dict[str, Any] = {"instances": [{"age": n, "genres": ["a", "b"]} for n in range(2000)]}
    with serving(tiny_artifacts, tmp_path, "--workers", "2", "--queue-rows", "1000000") as service:
        stop = threading.Event()

        def hammer(_: int) -> set[int]:
            codes = set()
            with httpx.Client(base_url=service.url, timeout=60) as client:
                while not stop.is_set():
                    codes.add(client.post("/predict", json=heavy).status_code)
            return codes

        with ThreadPoolExecutor(8) as pool:
            running = [pool.submit(hammer, n) for n in range(8)]
            time.sleep(0.5)
            with httpx.Client(base_url=service.url, timeout=10) as client:
                waits = [timed_get(client, path) for path in ["/livez", "/metrics", "/readyz"] * 20]
            stop.set()
            assert set().union(*(one.result() for one in running)) <= {200, 429}
        print(f"liveness while busy: median {statistics.median(waits[::3]):.3f} s, worst {max(waits[::3]):.3f} s")
        assert max(waits) < 2.5


def timed_get(client: httpx.Client, path: str) -> float:
    started = time.perf_counter()
    assert client.get(path).status_code == 200
    time.sleep(0.02)
    return time.perf_counter() - started - 0.02


def test_se03_changes_need_the_admin_token_once_one_is_set(tiny_artifacts: Path, tmp_path: Path) -> None:
    with serving(tiny_artifacts, tmp_path, "--load", "all", TWINRANK_ADMIN_TOKEN="secret-7") as service:
        change = {"weights": {"v1": 1}}
        assert service.put("/models/weights", change).status_code == 401
        assert (
            service.put("/models/weights", change, headers={"Authorization": "Bearer bad-guess-9"}).status_code == 401
        )
        assert httpx.delete(service.url + "/models/v1").status_code == 401
        assert service.put("/models/weights", change, headers={"Authorization": "Bearer secret-7"}).status_code == 200
        assert service.predict(ROW).status_code == 200
        assert httpx.get(service.url + "/models").status_code == 200
        assert "secret-7" not in service.log
        assert "bad-guess-9" not in service.log


def test_se03_beyond_loopback_changes_are_refused_without_a_token(tiny_artifacts: Path, tmp_path: Path) -> None:
    with serving(tiny_artifacts, tmp_path, "--host", "0.0.0.0") as service:
        refused = service.put("/models/weights", {"weights": {"v1": 1}})
        assert refused.status_code == 403
        assert "TWINRANK_ADMIN_TOKEN" in refused.text


@pytest.mark.parametrize(
    "name", ["http%3A%2F%2F127.0.0.1%3A1%2Fx", "file%3A%2F%2F%2Fetc%2Fhostname", "..%2F..%2Fetc", "weights"]
)
def test_se03_a_version_is_never_an_address(service: Service, name: str) -> None:
    assert service.put(f"/models/{name}").status_code in (404, 405, 422)


def test_a_client_token_guards_predictions_and_grants_nothing_else(tiny_artifacts: Path, tmp_path: Path) -> None:
    environment = {"TWINRANK_CLIENT_TOKEN": "gate", "TWINRANK_ADMIN_TOKEN": "root"}
    with serving(tiny_artifacts, tmp_path, **environment) as service:
        assert service.predict(ROW).status_code == 401
        assert service.predict(ROW, headers={"Authorization": "Bearer gate"}).status_code == 200
        gate = {"Authorization": "Bearer gate"}
        assert service.put("/models/weights", {"weights": {"v1": 1}}, headers=gate).status_code in (401, 403)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_op02_workers_times_threads_stay_within_the_cores(tiny_artifacts: Path, tmp_path: Path, workers: int) -> None:
    with serving(tiny_artifacts, tmp_path, "--workers", str(workers)) as service:
        started = [line for line in service.log.splitlines() if '"threads"' in line]
        assert started
        threads = max(1, allowed_cores() // workers)
        assert any(f'"threads": {threads}' in line for line in started), started


def command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "service", *words], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("serve", "--workers", "many"), 2, "--workers"),
        (("serve", "--frobnicate"), 2, "frobnicate"),
        (("serve", "--artifacts", "/nowhere/at/all"), 1, "/nowhere/at/all"),
        (("serve", "--state", "sqlite:////proc/none/state.db", "--artifacts", "{root}"), 1, "--state"),
        (("serve", "--device", "cuda", "--artifacts", "{root}", "--state", "sqlite:///{root}/.s.db"), 1, "CUDA"),
        (("serve", "--port", "{taken}", "--artifacts", "{root}"), 1, "--port"),
        (("serve", "--weights", "v9=1", "--artifacts", "{root}", "--state", "sqlite:///{root}/.t.db"), 1, "v9"),
        (("verify", "--artifact", "{root}/nothing"), 1, "manifest.json"),
    ],
)
def test_a_users_mistake_is_one_plain_line(
    service: Service, words: tuple[str, ...], code: int, said: str, tmp_path: Path
) -> None:
    root = tmp_path / "artifacts"
    shutil.copytree(service.artifacts, root)
    filled = [word.format(root=root, taken=service.port) for word in words]
    if "--port" not in filled and filled[0] == "serve":
        filled += ["--port", str(free_port())]
    done = command(*filled)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_verify_examines_a_version(tiny_artifacts: Path) -> None:
    assert command("verify", "--artifact", str(tiny_artifacts / "v1")).returncode == 0
