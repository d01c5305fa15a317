"""python -m service: serve, score, verify, catalog, join, simulate.

Exit codes: 0 done, 1 the work failed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from service import logs
from service.config import SettingsError, add_options, read_settings
from service.workers.preload import limit_threads
from service.workers.seats import StartError


def main(argv: list[str]) -> int:
    """Run one command line; the exit code. What is not needed for it is not imported."""
    given = _parser().parse_args(argv)
    try:
        code: int = given.run(given)
    except SettingsError as error:
        print(f"python -m service {given.command}: {error}", file=sys.stderr)
        return 2
    except StartError as error:
        print(f"python -m service {given.command}: {error}", file=sys.stderr)
        return 1
    return code


def _serve(given: argparse.Namespace) -> int:
    # Until the supervisor has its own way with it: the first process of a container would ignore it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    settings = read_settings(given)
    if settings.capture is not None:
        try:
            settings.capture.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StartError(f"--capture: {error}") from None
    logs.configure()
    limit_threads(settings.threads)
    from service.workers.supervisor import serve

    return serve(settings)


def _score(given: argparse.Namespace) -> int:
    from service.offline import score

    return score(given.artifact, given.input, given.output, device=given.device)


def _verify(given: argparse.Namespace) -> int:
    from service.offline import verify

    return verify(given.artifact)


def _catalog(given: argparse.Namespace) -> int:
    from service.revise import revise

    return revise(given.artifact, given.items, replace=given.replace)


def _join(given: argparse.Namespace) -> int:
    from service.join import Wish, join

    settle = 60 * given.settle_minutes
    return join(Wish(given.capture, given.state, given.output, given.artifacts, given.attribution_hours, settle))


def _simulate(given: argparse.Namespace) -> int:
    from service.simulation.command import simulate
    from service.simulation.run import Wish

    what = (given.url, given.scenario, given.users, given.experiment, given.challenger)
    return simulate(Wish(*what, given.lift, given.seed, given.runs, given.visits))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m service", description="Serves, scores and checks versions.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    serve = commands.add_parser("serve", help="answer requests", allow_abbrev=False)
    add_options(serve)
    serve.set_defaults(run=_serve)

    score = commands.add_parser("score", help="score the rows of a Parquet file", allow_abbrev=False)
    score.add_argument("--artifact", type=Path, required=True, metavar="DIR", help="folder of one version")
    score.add_argument("--input", type=Path, required=True, metavar="FILE.parquet")
    score.add_argument("--output", type=Path, required=True, metavar="FILE.parquet", help="input columns plus score")
    score.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    score.set_defaults(run=_score)

    verify = commands.add_parser("verify", help="check a version: hashes, schema, its own exam", allow_abbrev=False)
    verify.add_argument("--artifact", type=Path, required=True, metavar="DIR", help="folder of one version")
    verify.set_defaults(run=_verify)

    catalog = commands.add_parser("catalog", help="add a catalog revision to a version", allow_abbrev=False)
    catalog.add_argument("--artifact", type=Path, required=True, metavar="DIR", help="folder of one version")
    catalog.add_argument("--items", type=Path, required=True, metavar="FILE.parquet", help="item key and features")
    catalog.add_argument("--replace", action="store_true", help="the file's items instead of the newest revision's")
    catalog.set_defaults(run=_catalog)

    join = commands.add_parser("join", help="captured requests with their clicks, as a table to train on")
    join.add_argument("--capture", type=Path, required=True, metavar="DIR", help="what serve --capture wrote")
    join.add_argument("--state", required=True, metavar="URL", help="the service's state, as serve has it")
    join.add_argument("--output", type=Path, required=True, metavar="FILE.parquet")
    about = "folder of the versions: item features that were not sent come from their newest catalogs"
    join.add_argument("--artifacts", type=Path, metavar="DIR", help=about)
    about = "how long the service keeps events; what is older is left out (default: 24)"
    join.add_argument("--attribution-hours", type=float, default=24.0, metavar="H", help=about)
    about = "leave out what is younger: it may still be clicked (default: 0)"
    join.add_argument("--settle-minutes", type=float, default=0.0, metavar="M", help=about)
    join.set_defaults(run=_join)

    simulate = commands.add_parser("simulate", help="send synthetic users to a running service, print the verdict")
    simulate.add_argument("--url", default="http://127.0.0.1:8080", help="of the service (default: %(default)s)")
    simulate.add_argument("--scenario", choices=("aa", "lift", "srm", "leak"), default="aa", help="what is true")
    simulate.add_argument("--users", type=_positive, default=5000, metavar="N", help="how many come (default: 5000)")
    about = "run it in a new experiment of this name, at even weights; changes the split (default: use it as it is)"
    simulate.add_argument("--experiment", metavar="NAME", help=about)
    about = "which version differs (default: the first beside the default version that has weight, or is ready)"
    simulate.add_argument("--challenger", metavar="VERSION", help=about)
    simulate.add_argument("--lift", type=float, default=0.1, metavar="L", help="of scenario lift (default: 0.1)")
    simulate.add_argument("--seed", type=int, default=0, metavar="N", help="other users for another (default: 0)")
    simulate.add_argument(
        "--visits", type=_visits, default=3.0, metavar="N", help="mean requests of a user (default: 3)"
    )
    about = "so many experiments, NAME-1 and on, looked at again and again; prints how often each verdict ever came"
    simulate.add_argument("--runs", type=_positive, default=1, metavar="N", help=about)
    simulate.set_defaults(run=_simulate)

    return parser


def _visits(text: str) -> float:
    number = float(text)
    if not 1 <= number <= 1000:
        raise argparse.ArgumentTypeError("must be from 1 to 1000")
    return number


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
