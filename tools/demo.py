"""The demo behind `make demo`: MovieLens-100K, two versions, one service that splits its traffic 90/10.

What is there already is kept: the data in data/, the versions in artifacts/, the service's state in data/demo.db.
Uses the programs as a user would, by their command lines. With --only-train it stops before serving.
"""

import argparse
import os
import socket
import subprocess
import sys
from pathlib import Path

DATA = Path("data/movielens-100k")
ARTIFACTS = Path("artifacts")
VERSIONS = ("v1", "v2")

TRY = """
Once it listens, from another terminal:

  rank candidates for a user
    curl -s {url}/predict -H 'Content-Type: application/json' -d '{ranking}'

  score rows
    curl -s {url}/predict -H 'Content-Type: application/json' -d '{rows}'

  see both versions, then give each of them half of the traffic
    curl -s {url}/models
    curl -s -X PUT {url}/models/weights -H 'Content-Type: application/json' -d '{weights}'

  read on: {url}/docs   measure: {url}/metrics   stop: Ctrl-C
"""
RANKING = (
    '{"user": {"user_id": 1, "age": 24, "gender": "M", "occupation": "technician"}, '
    '"context": {"timestamp": "1998-04-22T20:00:00Z"}, "candidates": [50, 181, 258, 1680], "top_k": 3}'
)
ROWS = (
    '{"instances": [{"user_id": 1, "age": 24, "gender": "M", "occupation": "technician", '
    '"item_id": 50, "year": 1977, "genres": ["Action", "Sci-Fi"]}]}'
)
WEIGHTS = '{"weights": {"v1": 50, "v2": 50}}'


def check_free(host: str, port: int) -> None:
    """Ends the demo at once where the port cannot be had, not after minutes of training."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            sys.exit(f"demo: cannot listen on {host}:{port} ({error.strerror}); choose another: make demo PORT=8081")


def run(*arguments: str) -> None:
    """One command of the programs; its own message has been printed where it fails."""
    print(f"$ python -m {' '.join(arguments)}", flush=True)
    done = subprocess.run([sys.executable, "-m", *arguments], check=False)
    if done.returncode:
        sys.exit(done.returncode)


def train() -> None:
    run("training", "fetch", "movielens-100k", "--out", str(DATA))
    for version in VERSIONS:
        if not (ARTIFACTS / version / "manifest.json").exists():
            config = str(DATA / f"{version}.toml")
            where = ["--data", str(DATA), "--artifacts", str(ARTIFACTS), "--version", version]
            run("training", "fit", "--config", config, *where)


def serve(host: str, port: int, workers: int) -> None:
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    print(TRY.format(url=url, ranking=RANKING, rows=ROWS, weights=WEIGHTS), flush=True)
    where = ["--artifacts", str(ARTIFACTS), "--state", "sqlite:///data/demo.db", "--host", host, "--port", str(port)]
    first = ["--workers", str(workers), "--load", "all", "--weights", "v1=90,v2=10"]
    os.execv(sys.executable, [sys.executable, "-m", "service", "serve", *where, *first])


def main() -> None:
    parser = argparse.ArgumentParser(description="train two versions on MovieLens-100K and serve both")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only-train", action="store_true")
    options = parser.parse_args()
    os.chdir(Path(__file__).resolve().parent.parent)
    if not options.only_train:
        check_free(options.host, options.port)
    train()
    if not options.only_train:
        serve(options.host, options.port, options.workers)


if __name__ == "__main__":
    main()
