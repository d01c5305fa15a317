"""Run inside the serving image: starts the service as the image would, asks it, stops it. Prints what it saw as JSON.

python smoke_serve.py COMMAND…      (the image's own entry and command)
"""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

ABSENT = ("training", "pytest", "locust", "sklearn", "tensorboard", "mypy")


def ask(url: str, body: object = None) -> tuple[int, bytes]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=5) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError:
        return 0, b""


def wait_for(url: str, seconds: float) -> tuple[int, float]:
    """The last status and how long it took until it was 200."""
    started = time.monotonic()
    status = 0
    while time.monotonic() - started < seconds:
        status, _ = ask(url)
        if status == 200:
            break
        time.sleep(0.1)
    return status, round(time.monotonic() - started, 1)


def main(check: list[str], command: list[str]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    url = f"http://127.0.0.1:{port}"
    environment = {**os.environ, "TWINRANK_PORT": port, "TWINRANK_WORKERS": "2"}
    service = subprocess.Popen(command, env=environment)
    try:
        alive, ready = wait_for(f"{url}/livez", 60), wait_for(f"{url}/readyz", 60)
        health = subprocess.run(check, env=environment, check=False).returncode
        user = {"age": 30, "gender": "F"}
        status, answer = ask(f"{url}/predict", {"user": user, "candidates": [1, 2, 3], "unit_id": "u1"})
        closed, _ = ask(f"{url}/models/weights/rollback", {})
        metrics = ask(f"{url}/metrics")[0]
    finally:
        service.send_signal(signal.SIGTERM)
        code = service.wait(timeout=60)
    unhealthy = subprocess.run(check, env=environment, stderr=subprocess.DEVNULL, check=False).returncode
    seen = {
        "uid": os.getuid(),
        "livez": alive,
        "healthcheck": [health, unhealthy],
        "readyz": ready,
        "predict": [status, json.loads(answer or b"null")],
        "metrics": metrics,
        "change_without_token": closed,
        "exit": code,
        "present": [name for name in ABSENT if importlib.util.find_spec(name)],
    }
    print("SEEN " + json.dumps(seen), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])
