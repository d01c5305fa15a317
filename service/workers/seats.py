"""What a supervisor hands to a worker, as the hidden part of a command line."""

from __future__ import annotations

import argparse

# A worker that cannot start for a reason that another start would not mend.
START_FAILED = 3
# Beyond --drain-seconds a worker is given this to take itself down before it is killed.
GRACE_SECONDS = 3.0


class StartError(Exception):
    """The service cannot start: one plain line that says why."""


def add_seat(parser: argparse.ArgumentParser) -> None:
    """The options of `_worker` beside those of `serve`."""
    parser.add_argument("--seat", required=True)
    parser.add_argument("--replica", required=True)
    parser.add_argument("--metrics", required=True)
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--lifeline", type=int, required=True)
    parser.add_argument("--replacement", action="store_true")


def seat_options(seat: int, replica: str, metrics: str, handles: tuple[int, int], *, replacement: bool) -> list[str]:
    """The same, written; `handles` are the inherited socket and the pipe that ends with the supervisor."""
    socket, lifeline = map(str, handles)
    options = ["--seat", str(seat), "--replica", replica, "--metrics", metrics]
    options += ["--socket", socket, "--lifeline", lifeline]
    return [*options, "--replacement"] if replacement else options
