"""What is wrong with an answer of /predict: a 200 with a bad body is a failure like any other."""

import json
import math
from typing import Any


def _refuse(literal: str) -> None:
    raise ValueError(f"{literal} is no JSON")


def fault(status: int, version_header: str | None, body: bytes, rows: int) -> str | None:
    """One short reason, from a small closed set so that reasons can be counted; None where the answer is right."""
    if status != 200:
        return f"status {status}"
    try:
        answer = json.loads(body, parse_constant=_refuse)
    except ValueError:
        return "body is no JSON"
    if not isinstance(answer, dict) or "predictions" not in answer:
        return "no predictions in the body"
    if not isinstance(answer.get("model_version"), str) or answer["model_version"] != version_header:
        return "model_version differs from the header"
    scores = answer["predictions"]
    if not isinstance(scores, list) or len(scores) != rows:
        return "wrong number of scores"
    return None if all(_is_probability(score) for score in scores) else "a score is no probability"


def _is_probability(score: Any) -> bool:
    return isinstance(score, int | float) and not isinstance(score, bool) and math.isfinite(score) and 0 <= score <= 1
