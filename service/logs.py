"""Logs as one JSON object a line on stderr."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

_LOGGER = logging.getLogger("twinrank")


class JsonLines(logging.Formatter):
    """A record as one line: when, level, event, its fields, and the traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "pid": record.process,
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def configure() -> None:
    """Send every logger of the process through `JsonLines`."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    _LOGGER.setLevel(logging.INFO)


def event(name: str, *, level: int = logging.INFO, exc_info: BaseException | None = None, **fields: Any) -> None:
    """One line. Never hand in a credential or a unit."""
    _LOGGER.log(level, name, exc_info=exc_info, extra={"fields": fields})
