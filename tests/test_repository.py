"""What the repository's own files promise each other: lock files, make targets, images, README."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
LOCKS = {
    "requirements.lock": ("serve", "train", "tune", "notebooks", "load", "dev"),
    "requirements-serve.lock": ("serve",),
    "requirements-train.lock": ("train",),
}
DOCKERFILES = ("Dockerfile.serve", "Dockerfile.train")


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def pins(name: str) -> dict[str, str]:
    lines = [line for line in text(name).splitlines() if line and not line.startswith("#")]
    return dict(line.split("==") for line in lines)


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))


def readme_commands() -> Iterator[tuple[str, str, set[str]]]:
    """(program, subcommand, options) of each command line of the two programs in the README's code."""
    joined = text("README.md").replace("\\\n", " ")
    for program, subcommand, rest in re.findall(r"python -m (training|service) ([a-z]+)([^\n`|]*)", joined):
        yield program, subcommand, set(re.findall(r"--[a-z-]+", rest))


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_file_is_exact_pins_and_nothing_else(name: str):
    lines = [line for line in text(name).splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line)] == []


@pytest.mark.parametrize(("name", "extras"), LOCKS.items())
def test_a_lock_file_pins_every_range_of_the_project(name: str, extras: tuple[str, ...]):
    project = tomllib.loads(text("pyproject.toml"))["project"]
    ranges = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    found = pins(name)
    wanted = [Requirement(line) for line in ranges]
    assert [str(need) for need in wanted if not need.specifier.contains(found.get(need.name, "0"))] == []


@pytest.mark.parametrize("name", LOCKS)
def test_no_two_lock_files_disagree(name: str):
    assert pins(name).items() <= pins("requirements.lock").items()


def test_torch_is_a_range_in_the_project_and_a_pin_in_the_locks():
    project = tomllib.loads(text("pyproject.toml"))["project"]
    torch = next(Requirement(line) for line in project["dependencies"] if line.startswith("torch"))
    assert {spec.operator for spec in torch.specifier} == {">=", "<"}
    assert {pins(name)["torch"] for name in LOCKS} == {"2.13.0"}


def test_the_serving_image_installs_nothing_of_training_or_testing():
    absent = {"scikit-learn", "scipy", "tensorboard", "tqdm", "pytest", "hypothesis", "locust", "ruff", "mypy", "httpx"}
    assert absent & pins("requirements-serve.lock").keys() == set()


def test_the_training_image_installs_no_server():
    assert {"fastapi", "uvicorn", "sqlalchemy", "prometheus-client"} & pins("requirements-train.lock").keys() == set()


@pytest.mark.parametrize("name", DOCKERFILES)
def test_an_image_runs_as_an_ordinary_user_by_exec_form(name: str):
    lines = text(name).splitlines()
    assert "USER 1000" in lines
    entries = [line.split(" ", 1)[1] for line in lines if line.startswith(("ENTRYPOINT ", "CMD "))]
    assert [isinstance(json.loads(entry), list) for entry in entries] == [True, True]
    assert any(line.startswith("ARG BASE=") for line in lines)


def test_the_serving_image_copies_the_service_alone():
    copies = [line.split() for line in text("Dockerfile.serve").splitlines() if line.startswith("COPY ")]
    sources = {source for copy in copies if not copy[1].startswith("--from") for source in copy[1:-1]}
    assert sources == {"requirements-serve.lock", "pyproject.toml", "README.md", "LICENSE", "service"}
    assert "EXPOSE 8080" in text("Dockerfile.serve")


def test_the_workflows_run_make_targets_that_exist():
    called = [
        target
        for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
        for target in re.findall(r"make (?:--silent )?([a-z-]+)", path.read_text(encoding="utf-8"))
    ]
    assert {"test", "train", "images", "check-images"} <= set(called) <= targets()


def test_every_action_is_pinned_to_a_commit():
    uses = [
        line
        for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if "uses:" in line
    ]
    assert uses
    assert [line for line in uses if not re.search(r"@[0-9a-f]{40}  # v\d", line)] == []


def test_ci_runs_the_gate_of_the_makefile():
    assert "make test" in text(".ci/run")
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert {"setup", "demo", "test", "check-slow", "lint"} <= targets()


def test_a_stopped_demo_leaves_no_server_behind():
    """make sends a signal to the recipe's shell: the demo must be that process, not its child."""
    recipe = text("Makefile").split("\ndemo: ")[1].splitlines()[1]
    assert recipe.startswith("\t@exec ")
    assert "os.execv" in text("tools/demo.py")


def test_make_targets_named_in_the_readme_exist():
    named = set(re.findall(r"\bmake ([a-z-]+)", text("README.md")))
    assert {"demo", "test"} <= named <= targets()


def test_readme_commands_and_their_options_exist():
    commands: dict[tuple[str, str], set[str]] = {}
    for program, subcommand, options in readme_commands():
        commands.setdefault((program, subcommand), set()).update(options)
    assert {("training", "fit"), ("service", "serve")} <= commands.keys()
    for (program, subcommand), options in commands.items():
        command = [sys.executable, "-m", program, subcommand, "--help"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, (command, done.stderr)
        assert options <= set(re.findall(r"--[a-z-]+", done.stdout)), command


def test_the_readme_shows_the_demos_first_request():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import demo
    finally:
        sys.path.pop(0)
    assert demo.RANKING in text("README.md")
    assert demo.WEIGHTS in text("README.md")


def test_every_path_in_the_readmes_tree_exists():
    tree = text("README.md").split("```tree\n")[1].split("```")[0]
    folder, missing = "", []
    for line in tree.splitlines():
        names = line[:30].split("  ")[0] if not line.startswith("  ") else line.strip().split("  ")[0]
        if not line.startswith("  "):
            folder = names.split()[0] if names.split()[0].endswith("/") else ""
        for name in names.split():
            path = ROOT / (name if not line.startswith("  ") else folder + name)
            if not path.exists():
                missing.append(str(path.relative_to(ROOT)))
    assert missing == []


def test_the_changelog_names_the_version():
    version = tomllib.loads(text("pyproject.toml"))["project"]["version"]
    assert re.search(rf"^## \[{re.escape(version)}\]", text("CHANGELOG.md"), re.MULTILINE)


@pytest.mark.parametrize("room", ["service", "training"])
def test_no_file_outgrows_its_noun(room: str):
    sizes = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in (ROOT / room).rglob("*.py")}
    assert {name: lines for name, lines in sizes.items() if lines > 300} == {}
