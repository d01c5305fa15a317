"""Logs: one JSON object a line."""

import json
import logging
import subprocess
import sys

from service import logs


def formatted(caplog, **more):
    caplog.set_level("INFO", logger="twinrank")
    logs.event("weights", **more)
    return logs.JsonLines().format(caplog.records[-1])


def test_an_event_is_one_line_of_json_with_its_fields(caplog):
    line = formatted(caplog, epoch=7, version="v1\n用户")
    assert "\n" not in line
    told = json.loads(line)
    assert (told["event"], told["epoch"], told["version"], told["level"]) == ("weights", 7, "v1\n用户", "info")
    assert told["at"].endswith("+00:00")


def test_a_traceback_stays_on_the_line(caplog):
    try:
        raise RuntimeError("broken")
    except RuntimeError as error:
        line = formatted(caplog, level=logging.ERROR, exc_info=error)
    assert "\n" not in line
    assert "RuntimeError: broken" in json.loads(line)["traceback"]


def test_what_is_no_json_is_written_as_text(caplog):
    assert json.loads(formatted(caplog, where=sys))["where"].startswith("<module")


def test_other_libraries_warnings_are_lines_too():
    code = (
        "import logging; from service import logs; logs.configure()\n"
        "logging.getLogger('uvicorn.error').warning('odd %s', 1); logging.getLogger('x').info('quiet')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    [line] = done.stderr.splitlines()
    assert json.loads(line)["event"] == "odd 1"
