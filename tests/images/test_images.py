"""Both images are built, a version is trained in the one and served from the other.

With docker; or, where there is none, with a program named by IMAGE_TOOL that takes
`[--build-arg N=V …] DOCKERFILE CONTEXT TAG` to build and `--run [--volume HERE:THERE …] TAG COMMAND …` to run.
"""

import json
import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
TOOL = os.environ.get("IMAGE_TOOL")
CONFIG = """
[data]
format = "csv"
label = "clicked"
unit = "user_id"
item = "item_id"
[split]
kind = "random"
[[features]]
name = "age"
kind = "numeric"
side = "user"
[[features]]
name = "gender"
kind = "categorical"
side = "user"
[[features]]
name = "genres"
kind = "multi"
side = "item"
[model]
hidden = [8]
[train]
batch_size = 256
epochs = 2
"""


def call(command: list[str], *, timeout: int) -> str:
    """The output; a failure shows all of it."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def build(dockerfile: str, tag: str) -> str:
    arguments = [f"--build-arg={name}={os.environ[name]}" for name in ("BASE", "TORCH_INDEX") if os.environ.get(name)]
    if TOOL:
        arguments = [part for argument in arguments for part in argument.split("=", 1)]
        call([TOOL, *arguments, dockerfile, ".", tag], timeout=1800)
    else:
        call(["docker", "build", *arguments, "-f", dockerfile, "-t", tag, "."], timeout=1800)
    return tag


def run(tag: str, command: list[str], volumes: dict[Path, str]) -> str:
    mounts = [part for here, there in volumes.items() for part in ("--volume", f"{here}:{there}")]
    if TOOL:
        return call([TOOL, "--run", *mounts, tag, *command], timeout=600)
    return call(["docker", "run", "--rm", *mounts, "--entrypoint", command[0], tag, *command[1:]], timeout=600)


def entry(dockerfile: str, instruction: str) -> list[str]:
    """The list of an exec-form instruction; HEALTHCHECK's CMD is the indented one."""
    found = re.search(rf"^{instruction} (\[.*\])$", (ROOT / dockerfile).read_text(encoding="utf-8"), re.MULTILINE)
    assert found
    return json.loads(found[1])


@pytest.fixture(name="shared", scope="module")
def _shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the images' user may write to, with generated clicks in data/."""
    if not TOOL and subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        pytest.skip("no container engine: neither docker nor IMAGE_TOOL")
    shared = tmp_path_factory.mktemp("images")
    for name in ("data", "artifacts", "state", "smoke"):
        (shared / name).mkdir()
    draw = random.Random(1)
    lines = ["user_id,item_id,age,gender,genres,clicked"]
    for _ in range(2000):
        age, genre = draw.randint(18, 70), draw.choice(["drama", "comedy", "war"])
        clicked = int(draw.random() < (0.8 if genre == "drama" else 0.2))
        lines.append(f"{draw.randint(1, 99)},{draw.randint(1, 50)},{age},{draw.choice('FM')},{genre},{clicked}")
    (shared / "data" / "clicks.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (shared / "smoke" / "tiny.toml").write_text(CONFIG, encoding="utf-8")
    shutil.copy(Path(__file__).with_name("smoke_serve.py"), shared / "smoke")
    call(["chmod", "-R", "a+rwX", str(shared)], timeout=10)
    for folder in (shared, *list(shared.parents)[:2]):
        folder.chmod(0o755)
    return shared


@pytest.fixture(name="version", scope="module")
def _version(shared: Path) -> Path:
    """A version trained inside the training image."""
    tag = build("Dockerfile.train", "twinrank-train")
    fit = ["fit", "--config", "smoke/tiny.toml", "--data", "data/clicks.csv", "--artifacts", "artifacts"]
    volumes = {shared / name: f"/srv/{name}" for name in ("data", "artifacts", "smoke")}
    run(tag, [*entry("Dockerfile.train", "ENTRYPOINT"), *fit, "--version", "v1"], volumes)
    return shared / "artifacts" / "v1"


def test_the_training_image_publishes_a_version_as_an_ordinary_user(version: Path):
    assert (version / "manifest.json").is_file()
    assert version.stat().st_uid == 1000


def test_the_training_image_holds_no_serving_app(version: Path):
    find = "import importlib.util as u; print([n for n in ('service.app', 'fastapi', 'pytest') if u.find_spec(n)])"
    assert run("twinrank-train", ["python", "-c", find], {}).strip() == "[]"


def test_the_serving_image_answers_for_that_version_and_stops_when_told(shared: Path, version: Path):
    tag = build("Dockerfile.serve", "twinrank-serve")
    start = [*entry("Dockerfile.serve", "ENTRYPOINT"), *entry("Dockerfile.serve", "CMD")]
    volumes = {shared / name: f"/srv/{name}" for name in ("artifacts", "state", "smoke")}
    check = json.dumps(entry("Dockerfile.serve", "  CMD"))
    printed = run(tag, ["python", "smoke/smoke_serve.py", check, *start], volumes)
    seen = json.loads(next(line for line in printed.splitlines() if line.startswith("SEEN "))[5:])
    status, answer = seen["predict"]
    assert (seen["uid"], seen["livez"][0], seen["readyz"][0], seen["metrics"], seen["exit"]) == (1000, 200, 200, 200, 0)
    assert (status, answer["model_version"], len(answer["predictions"])) == (200, "v1", 3)
    assert seen["healthcheck"] == [0, 1]  # while it lived, and afterwards
    assert seen["change_without_token"] == 403
    assert seen["present"] == []
