"""python -m service simulate: one simulation and its verdict, or many and how often each verdict came."""

from __future__ import annotations

import os
import sys
from contextlib import closing

from service.simulation.gateway import Gateway, GatewayError
from service.simulation.run import Wish, lines, run
from service.simulation.series import run_all, tally


def simulate(wish: Wish) -> int:
    """Simulate what is wished; the exit code."""
    try:
        if wish.runs > 1 and wish.experiment is None:
            raise GatewayError("--runs needs an --experiment: each run is one of its own")
        with closing(Gateway(wish.url, os.environ.get("TWINRANK_ADMIN_TOKEN"))) as gateway:
            told = lines(run(gateway, wish), wish) if wish.runs == 1 else tally(run_all(gateway, wish))
            print("\n".join(told))
    except GatewayError as error:
        print(f"python -m service simulate: {error}", file=sys.stderr)
        return 1
    return 0
