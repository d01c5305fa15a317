"""Command line of training: fetch, fit, evaluate, compare, tune.

Exit codes: 0 done, 1 the work failed (one line on stderr says what and where), 2 wrong usage; 130 and 143 where it was
interrupted or terminated.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

from service.scoring.device import DEVICES, DeviceError, choose_device
from service.scoring.files import ArtifactError, is_version_name
from service.scoring.publish import check_publishable
from training.config import MAX_INTEGER, MAX_SEED, ConfigError, read_config
from training.errors import TrainingError
from training.fetch import DATA_SETS, fetch_movielens
from training.memory import of_memory
from training.raw import RAW_DATA_SETS, convert_raw
from training.stopping import Stopping, Terminated

_STREAMED = "where rows are streamed to, and kept: a fit's finds them there (default: a temporary folder)"
FAILURES = (TrainingError, ConfigError, ArtifactError, DeviceError)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    # Read when torch is imported, below. Waiting threads else spin, and beside a busy neighbour a fit takes minutes.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    options = _parser().parse_args(arguments)
    _log_to_streams()
    try:
        options.run(options)
    except FAILURES as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except Terminated as stop:
        print(f"terminated: {stop.args[0] if stop.args else 'nothing was published'}", file=sys.stderr)
        return 143
    except KeyboardInterrupt:
        print("interrupted; nothing was published", file=sys.stderr)
        return 130
    except OSError as error:
        print(f"error: {error.filename or 'input/output'}: {error.strerror or error}", file=sys.stderr)
        return 1
    except (MemoryError, RuntimeError) as error:
        if not of_memory(error):
            raise
        print("error: not enough memory; a smaller hidden, dim, buckets or batch_size takes less", file=sys.stderr)
        return 1
    return 0


def _fetch(options: argparse.Namespace) -> None:
    if options.raw is None:
        if options.name not in DATA_SETS:
            options.refuse(f"{options.name} is made from raw files that you have: name their folder with --from")
        fetch_movielens(options.out)
    elif options.name in RAW_DATA_SETS:
        convert_raw(options.name, options.raw, options.out)
    else:
        options.refuse(f"{options.name} is downloaded; --from is for {', '.join(RAW_DATA_SETS)}")


def _fit(options: argparse.Namespace) -> None:
    from training import train  # torch and TensorBoard take a second to import
    from training.checkpoint import claimed
    from training.distributed import joined

    config = read_config(options.config).with_train(epochs=options.epochs, seed=options.seed)
    device = _device(options.device)
    command = shlex.join(["python", "-m", "training", *sys.argv[1:]])
    where = (options.data, options.artifacts, options.version)
    with Stopping().listening() as stopping, joined(device) as group, ExitStack() as stack:
        if group.first:
            check_publishable(options.artifacts, options.version)
            stack.enter_context(claimed(options.artifacts, options.version))
        if not group.first:
            logging.getLogger("training").setLevel(logging.ERROR)
        folder = train.main(
            config,
            *where,
            device=device,
            command=command,
            strict=options.strict,
            amp=options.amp,
            resume=options.resume,
            checkpoint_minutes=options.checkpoint_minutes,
            cache=options.cache,
            memory=options.gpu_memory_fraction,
            stopping=stopping,
            group=group,
        )
        if group.first:
            print(f"published {folder}")
    if options.push_metrics and group.first:
        from training.push import push_metrics

        push_metrics(folder, options.push_metrics)


def _compare(options: argparse.Namespace) -> None:
    from training.compare import compare_versions

    device = choose_device(options.device)
    how = {"split": options.split, "device": device, "cache": options.cache}
    print(json.dumps(compare_versions(options.a, options.b, options.data, **how)))


def _tune(options: argparse.Namespace) -> None:
    from training.tune import toml_lines, tune

    device = _device(options.device)
    found = tune(options.config, options.data, device=device, trials=options.trials, seed=options.seed or 1)
    print("\n".join(toml_lines(found["settings"])))
    print(json.dumps(found))


def _evaluate(options: argparse.Namespace) -> None:
    from training.evaluate import evaluate_version

    device = choose_device(options.device)
    how = {"split": options.split, "device": device, "cache": options.cache}
    found, notes = evaluate_version(options.artifact, options.data, **how)
    for note in notes:
        logging.getLogger("training").warning("warning: %s", note)
    print(json.dumps({**found, "split": options.split, "device": device}))


def _device(wanted: str) -> str:
    device = choose_device(wanted)
    if wanted == "auto":
        logging.getLogger("training").info("device auto: %s", device)
    return device


def _log_to_streams() -> None:
    """Progress to stdout, warnings to stderr: a failed run's stderr then ends in the one line that says why."""
    plain = logging.StreamHandler(sys.stdout)
    plain.addFilter(lambda record: record.levelno < logging.WARNING)
    loud = logging.StreamHandler(sys.stderr)
    loud.setLevel(logging.WARNING)
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[plain, loud], force=True)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m training", description="Train and publish click models.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    fetch = commands.add_parser("fetch", help="obtain a data set with its configs")
    fetch.add_argument("name", choices=(*DATA_SETS, *RAW_DATA_SETS))
    fetch.add_argument("--from", dest="raw", type=Path, metavar="FOLDER", help="where the raw files lie")
    fetch.add_argument("--out", type=Path, required=True, metavar="DIR")
    fetch.set_defaults(run=_fetch, refuse=fetch.error)

    fit = commands.add_parser("fit", help="train and publish one version")
    fit.add_argument("--config", type=Path, required=True, metavar="FILE.toml")
    fit.add_argument("--data", type=Path, required=True, metavar="PATH")
    fit.add_argument("--artifacts", type=Path, required=True, metavar="DIR")
    fit.add_argument("--version", type=_version, required=True, metavar="NAME")
    fit.add_argument("--device", choices=DEVICES, default="auto")
    fit.add_argument("--amp", choices=("off", "bf16", "fp16"), default="off", help="precision of layers")
    fit.add_argument("--epochs", type=_positive, metavar="N", help="instead of the config's")
    fit.add_argument("--seed", type=_natural, metavar="N", help="instead of the config's")
    fit.add_argument("--resume", action="store_true", help="go on from the newest checkpoint, if there is one")
    fit.add_argument("--cache", type=Path, metavar="DIR", help="where encoded data lies (default <artifacts>/.cache)")
    fit.add_argument(
        "--checkpoint-minutes", type=_minutes, default=5.0, metavar="M", help="time between two checkpoints (default 5)"
    )
    fit.add_argument(
        "--gpu-memory-fraction",
        type=_share,
        default=1.0,
        metavar="F",
        help="most of a GPU to hold (default 1)",
    )
    fit.add_argument("--strict", action="store_true", help="publish nothing where the leakage report finds a leak")
    fit.add_argument("--push-metrics", metavar="URL", help="send the final figures to a Prometheus Pushgateway")
    fit.set_defaults(run=_fit, refuse=fit.error)

    evaluate = commands.add_parser("evaluate", help="score a part of some data with a published version")
    evaluate.add_argument("--artifact", type=Path, required=True, metavar="DIR")
    evaluate.add_argument("--data", type=Path, required=True, metavar="PATH")
    evaluate.add_argument("--split", choices=("test", "valid", "train", "all"), default="test")
    evaluate.add_argument("--device", choices=DEVICES, default="auto")
    evaluate.add_argument("--cache", type=Path, metavar="DIR", help=_STREAMED)
    evaluate.set_defaults(run=_evaluate)

    compare = commands.add_parser("compare", help="the paired difference of two versions on the same rows")
    compare.add_argument("a", type=Path, metavar="A")
    compare.add_argument("b", type=Path, metavar="B")
    compare.add_argument("--data", type=Path, required=True, metavar="PATH")
    compare.add_argument("--split", choices=("test", "valid", "train", "all"), default="test")
    compare.add_argument("--device", choices=DEVICES, default="auto")
    compare.add_argument("--cache", type=Path, metavar="DIR", help=_STREAMED)
    compare.set_defaults(run=_compare)

    tune = commands.add_parser("tune", help="search the ranges of a config's [tune] section on the validation part")
    tune.add_argument("--config", type=Path, required=True, metavar="FILE.toml")
    tune.add_argument("--data", type=Path, required=True, metavar="PATH")
    tune.add_argument("--trials", type=_positive, metavar="N", help="instead of the config's")
    tune.add_argument("--seed", type=_natural, metavar="N", help="of the search")
    tune.add_argument("--device", choices=DEVICES, default="auto")
    tune.set_defaults(run=_tune)
    return parser


def _version(text: str) -> str:
    if not is_version_name(text):
        raise argparse.ArgumentTypeError(
            f"'{text}' cannot name a version: letters, digits, '.', '_' and '-' only, at most 64, not 'weights'"
        )
    return text


def _positive(text: str) -> int:
    return _between(text, 1, MAX_INTEGER)


def _natural(text: str) -> int:
    return _between(text, 0, MAX_SEED)


def _minutes(text: str) -> float:
    value = _number(text)
    if not value >= 0:
        raise argparse.ArgumentTypeError("must be at least 0")
    return value


def _share(text: str) -> float:
    value = _number(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError("must be above 0 and at most 1")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, found '{text[:40]}'") from None


def _between(text: str, least: int, most: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, found '{text[:40]}'") from None
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"must be at least {least} and at most {most}")
    return value


if __name__ == "__main__":
    sys.exit(main())
