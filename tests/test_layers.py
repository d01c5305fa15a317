"""What may import what: the table, held against the real files.

Read from the syntax tree, so an import inside a function or under TYPE_CHECKING counts too. What is imported by a
string at run time (importlib, a subprocess) is not seen.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Rule:
    """Files under `room` import nothing of `banned`, but for what lies under `allowed`; names are dotted prefixes."""

    room: str
    banned: tuple[str, ...]
    allowed: tuple[str, ...] = ()
    but: tuple[str, ...] = ()  # rooms inside `room` that the rule spares


WEB = ("fastapi", "starlette", "uvicorn", "uvloop", "httptools")
RULES = (
    Rule("service.scoring", banned=("service", "training"), allowed=("service.scoring",)),
    Rule("service.scoring", banned=(*WEB, "asyncio", "prometheus_client", "sqlalchemy", "sqlite3")),
    Rule("service", banned=("training",)),
    Rule("training", banned=("service",), allowed=("service.scoring",)),
    Rule("training", banned=(*WEB, "sqlalchemy", "sqlite3")),
    Rule("training", banned=("prometheus_client",), but=("training.push",)),
    Rule("training", banned=("optuna",), but=("training.tune",)),
    Rule("service.batching", banned=("service",), allowed=("service.batching",)),
    Rule("service.batching", banned=("torch", "numpy", "prometheus_client", *WEB)),
    Rule("service.traffic", banned=("service", "torch", "prometheus_client", *WEB)),
    Rule("service.state", banned=("service.api", "service.registry", "service.metrics", "torch", *WEB)),
    Rule("service", banned=("sqlalchemy", "sqlite3"), but=("service.state",)),
    Rule("service", banned=("prometheus_client",), but=("service.metrics",)),
    Rule("service", banned=("service.api",), but=("service.api", "service.app", "service.workers.protocol")),
    Rule("service", banned=("service.app",), but=("service.__main__", "service.workers")),
    Rule("service", banned=("sklearn",), but=("service.scoring.numeric",)),  # fits the scalers; serving needs none
    Rule("service", banned=("tensorboard", "tqdm")),
    Rule("service", banned=("scipy", "statsmodels", "pandas", "matplotlib")),  # the tests' oracles and the notebooks'
    Rule("service.experiments", banned=("service.api", "prometheus_client", *WEB)),
    *(
        Rule(f"service.experiments.{pure}", banned=("service", "asyncio"), allowed=("service.experiments",))
        for pure in ("statistics", "sequential", "split_check", "quality", "comparison", "verdict", "report")
    ),
)


def sources(root: Path = ROOT) -> dict[str, str]:
    """The text of every file of the two programs, by dotted module name."""
    files = [path for room in ("service", "training") for path in sorted((root / room).rglob("*.py"))]
    return {module_name(path.relative_to(root)): path.read_text(encoding="utf-8") for path in files}


def module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_under(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def imports(module: str, text: str, modules: frozenset[str]) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of each import; `from a import b` gives a.b where that is a module, else a."""
    package = module if any(name.startswith(module + ".") for name in modules) else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base]).rstrip(".")
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield node.lineno, inner if inner in modules or not is_under(base, ("service", "training")) else base


def import_faults(files: Mapping[str, str]) -> list[str]:
    modules = frozenset(files)
    return [
        f"{module}:{line} imports {name}"
        for module, text in files.items()
        for line, name in imports(module, text, modules)
        for rule in RULES
        if is_under(module, (rule.room,)) and not is_under(module, rule.but)
        if is_under(name, rule.banned) and not is_under(name, rule.allowed)
    ]


def jit_places(files: Mapping[str, str]) -> dict[str, list[str]]:
    """Where each function of torch.jit is named, however torch.jit was imported."""
    places: dict[str, list[str]] = defaultdict(list)
    for module, text in files.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("torch.jit", "jit"):
                if not node.attr[0].isupper():  # the classes serve as types
                    places[node.attr].append(f"{module}:{node.lineno}")
            elif isinstance(node, ast.ImportFrom) and node.module == "torch.jit":
                for alias in node.names:
                    places[alias.name].append(f"{module}:{node.lineno}")
    return places


def jit_faults(files: Mapping[str, str]) -> list[str]:
    return [f"torch.jit.{name} in {', '.join(at)}" for name, at in jit_places(files).items() if len(at) > 1]


def cycles(files: Mapping[str, str]) -> list[str]:
    """Import cycles between modules, those inside functions included."""
    modules = frozenset(files)
    graph = {
        module: {name for _, name in imports(module, text, modules) if name in modules and name != module}
        for module, text in files.items()
    }
    found: list[str] = []
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        if module in path:
            found.append(" -> ".join([*path[path.index(module) :], module]))
        elif module not in done:
            for name in sorted(graph[module]):
                visit(name, (*path, module))
            done.add(module)

    for module in sorted(graph):
        visit(module, ())
    return found


def test_no_file_imports_what_its_layer_must_not_know():
    assert import_faults(sources()) == []


def test_imports_point_one_way():
    assert cycles(sources()) == []


def test_each_call_of_torch_jit_stands_in_one_place():
    assert jit_faults(sources()) == []


def test_the_table_reads_the_real_files():
    assert {name.partition(".")[0] for name in sources()} >= {"service", "training"}


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("service.scoring.engine", "import fastapi"),
        ("service.scoring.engine", "from service import traffic"),
        ("service.scoring.engine", "from .. import traffic"),
        ("service.scoring.engine", "from ..traffic import Split"),
        ("service.scoring.engine", "def f():\n    import asyncio"),
        ("service.api.predict", "from training.model import WideDeep"),
        ("training.export", "from service.registry import Registry"),
        ("training.export", "import service"),
        ("service.batching", "from prometheus_client import Counter"),
        ("service.batching.batcher", "from ..scoring import predictor"),
        ("service.registry", "from sqlalchemy import text"),
        ("service.api.models", "import prometheus_client.core"),
        ("service.registry", "from service.api.predict import router"),
    ],
)
def test_the_table_catches_a_wrong_import(module: str, line: str):
    stubs = {"service.scoring.engine": "", "service.traffic": "", "service.api.predict": "", "service.registry": ""}
    assert import_faults({**stubs, module: line})


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("training.export", "from service.scoring.publish import publish"),
        ("training.export", "from service import scoring"),
        ("service.scoring.engine", "from . import layout"),
        ("service.state.store", "import sqlalchemy as sa"),
        ("service.metrics", "from prometheus_client import Counter"),
        ("service.scoring.engine", "import asyncio_lookalike"),
    ],
)
def test_the_table_lets_a_right_import_pass(module: str, line: str):
    stubs = {"service.scoring": "", "service.scoring.layout": "", "service.scoring.publish": ""}
    assert import_faults({**stubs, module: line}) == []


def test_a_second_call_of_torch_jit_is_caught():
    files = {"service.scoring.engine": "import torch\ntorch.jit.load('a')", "training.export": "torch.jit.load('b')"}
    assert jit_faults(files) == ["torch.jit.load in service.scoring.engine:2, training.export:1"]


def test_a_cycle_is_caught():
    files = {"service.a": "from service import b", "service.b": "def f():\n    from service.a import x"}
    assert cycles(files) == ["service.a -> service.b -> service.a"]
