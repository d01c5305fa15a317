"""Figures at a gateway, which a few lines of HTTP stand for."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.training.test_command import words
from tests.training.tiny_data import visible, write_data
from training.__main__ import main


def test_the_final_figures_are_pushed_under_the_versions_name(tmp_path: Path) -> None:
    taken: list[tuple[str, str]] = []

    class Gateway(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            taken.append((self.path, body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Gateway) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        write_data(tmp_path)
        assert main(words(tmp_path, "--device", "cpu", "--epochs", "1", "--push-metrics", url)) == 0
        thread.join(10)
    ((path, body),) = taken
    assert path == "/metrics/job/twinrank/version/v1"
    assert 'twinrank_training_auc{part="test"}' in body
    assert "twinrank_training_rows_per_second" in body


def test_no_gateway_is_one_line_and_the_version_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_data(tmp_path)
    command = words(tmp_path, "--device", "cpu", "--epochs", "1", "--push-metrics", "http://127.0.0.1:9")
    assert main(command) == 1
    assert "could not be pushed" in capsys.readouterr().err
    assert visible(tmp_path / "artifacts") == ["v1"]
