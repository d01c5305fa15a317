"""Faults that hostile testing met, each held against a real service."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.server import Service, serving

ROW = {"instances": [{"user_id": "u1", "age": 33}]}


@pytest.fixture
def own(tiny_artifacts: Path, tmp_path: Path) -> Iterator[Service]:
    root = tmp_path / "artifacts"
    shutil.copytree(tiny_artifacts, root)
    with serving(root, tmp_path / "service", "--workers", "2", "--load", "all", "--weights", "v1=1") as running:
        yield running


def until(true: Callable[[], bool], service: Service, seconds: float = 10) -> None:
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends, service.log[-3000:]
        time.sleep(0.1)


def answered_by(service: Service) -> set[str]:
    return {service.predict(ROW).json()["model_version"] for _ in range(20)}


def add_version(service: Service, name: str, change: dict[str, Any]) -> None:
    """A copy of v1 under another name, its manifest changed."""
    aside = service.artifacts / f".{name}"
    shutil.copytree(service.artifacts / "v1", aside)
    manifest = json.loads((aside / "manifest.json").read_text())
    (aside / "manifest.json").write_text(json.dumps({**manifest, "version": name, **change}))
    os.rename(aside, service.artifacts / name)


def test_bad_manifests_stop_neither_the_control_nor_the_listing_nor_a_start(own: Service) -> None:
    add_version(own, "bad1", {"schema": {"unit": [1], "item": None, "features": [], "crosses": []}})
    add_version(own, "bad2", {"schema": 7})
    add_version(own, "bad3", {"metrics": {"auc": 10**30}})
    add_version(own, "bad4", {"created": "\ud800"})
    time.sleep(1.5)
    listed = {one["version"]: one["state"] for one in httpx.get(own.url + "/models").json()["models"]}
    assert [listed[f"bad{n}"] for n in range(1, 5)] == ["failed"] * 4
    assert own.put("/models/weights", {"weights": {"v2": 1}}).status_code == 200
    assert answered_by(own) == {"v2"}
    assert own.stop() == 0
    own.start()


def test_a_comment_that_cannot_be_shown_is_refused_and_changes_nothing(own: Service) -> None:
    content = b'{"weights": {"v2": 1}, "comment": "\\ud800"}'
    refused = httpx.put(own.url + "/models/weights", content=content, timeout=10)
    assert refused.status_code in (400, 422)
    assert httpx.get(own.url + "/models").json()["epoch"] == 1
    assert httpx.get(own.url + "/models/weights/history").status_code == 200


def test_a_state_that_was_set_back_is_followed(own: Service) -> None:
    path = own.folder / "state.db"
    with closing(sqlite3.connect(path)) as live, closing(sqlite3.connect(own.folder / "backup.db")) as backup:
        live.backup(backup)
    for version in ("v2", "v3", "v2"):
        assert own.put("/models/weights", {"weights": {version: 1}}).status_code == 200
    with closing(sqlite3.connect(path)) as live, closing(sqlite3.connect(own.folder / "backup.db")) as backup:
        backup.backup(live)
    until(lambda: answered_by(own) == {"v1"}, own)
    assert own.put("/models/weights", {"weights": {"v3": 1}}).status_code == 200
    until(lambda: answered_by(own) == {"v3"}, own, 3)


def test_changes_are_refused_once_the_state_file_was_moved_away(own: Service) -> None:
    os.rename(own.folder / "state.db", own.folder / "elsewhere.db")
    assert own.put("/models/weights", {"weights": {"v2": 1}}).status_code == 503
    assert answered_by(own) == {"v1"}


def test_a_load_that_was_answered_202_is_part_of_the_stored_state(own: Service) -> None:
    assert httpx.delete(own.url + "/models/v3", timeout=30).status_code == 200
    assert own.put("/models/v3?wait=false").status_code == 202
    own.kill()
    own.start()

    def state() -> str:
        return str({one["version"]: one["state"] for one in httpx.get(own.url + "/models").json()["models"]}["v3"])

    until(lambda: state() == "ready", own)
    assert own.put("/models/v3?wait=false").status_code == 202
    assert httpx.delete(own.url + "/models/v3", timeout=30).status_code in (200, 202)
    time.sleep(1.5)
    assert state() == "available"


def test_names_of_a_version_that_was_copied_in_are_learnt(own: Service) -> None:
    (own.artifacts / "v9").mkdir()
    time.sleep(1.5)
    manifest = json.loads((own.artifacts / "v1" / "manifest.json").read_text())
    manifest["schema"]["features"].append({"name": "novel", "kind": "categorical", "side": "user"})
    (own.artifacts / "v9" / "manifest.json").write_text(json.dumps({**manifest, "version": "v9"}))
    until(lambda: own.predict({"instances": [{"novel": 1}]}).status_code == 200, own, 5)


def test_traffic_can_be_moved_though_the_artifacts_folder_is_gone(own: Service) -> None:
    os.rename(own.artifacts, own.artifacts.with_name("gone"))
    assert own.put("/models/weights", {"weights": {"v2": 1}}).status_code == 200
    assert answered_by(own) == {"v2"}


def test_an_offer_to_upgrade_is_ignored_and_the_body_kept(service: Service) -> None:
    headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAEAAEAAAAIAAAAB"}
    assert service.predict(ROW, headers=headers).status_code == 200


def test_a_head_without_end_is_refused(service: Service) -> None:
    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Long: ")
        try:
            for _ in range(200):
                connection.sendall(b"x" * 4096)
            answer = connection.recv(4096)
        except OSError:
            answer = b""  # closed while it was being sent
        assert answer == b"" or b" 431 " in answer.split(b"\r\n")[0]
    assert service.predict(ROW).status_code == 200


def test_a_flag_that_is_given_twice_is_refused(service: Service) -> None:
    response = service.put("/models/weights?dry_run=true&dry_run=false", {"weights": {"v1": 1}})
    assert response.status_code == 422
