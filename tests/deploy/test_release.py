"""A release and the way to it: one version, whole archives, a Makefile that explains itself, forge files."""

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from penstock import __version__
from tests.deploy.files import DEPLOY, ROOT, read, read_yaml

OLD_PYTHON = """#!/bin/sh
[ "$1" = -V ] && echo "Python 3.10.13" && exit
exit 1
"""
FAILING_PIP = """#!/bin/sh
[ "$3" != install ] && exit
echo "ERROR: No matching distribution found for pyarrow" >&2
exit 1
"""


def test_every_place_that_repeats_the_version_has_it() -> None:
    package = ROOT / "src" / "penstock" / "doors" / "web" / "site" / "static" / "package.json"
    assert json.loads(read(package))["version"] == __version__
    assert re.findall(r"^## (\S+)", read(ROOT / "CHANGELOG.md"), re.MULTILINE)[0] == __version__
    for path in (
        DEPLOY / "container" / "Containerfile",
        ROOT / "docs" / "how-to" / "run-in-containers.md",
        ROOT / "docs" / "how-to" / "run-on-kubernetes.md",
    ):
        named = re.findall(r"penstock(?:-dashboard)?:(\d+\.\d+\.\d+)", read(path))
        assert set(named) == {__version__}, path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with wheel and sdist; the tools of the tests build them, which needs no network."""
    folder = tmp_path_factory.mktemp("dist")
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_wheel_has_everything_that_runs(built: Path) -> None:
    with ZipFile(built / f"penstock-{__version__}-py3-none-any.whl") as wheel:
        names = set(wheel.namelist())
        metadata = wheel.read(f"penstock-{__version__}.dist-info/METADATA").decode()
    sources = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert sources <= names
    assert "penstock/examples/plant/__main__.py" in names
    assert "\nRequires-Python: >=3.11\n" in metadata


def test_sdist_has_everything_that_builds_and_tests(built: Path) -> None:
    with tarfile.open(built / f"penstock-{__version__}.tar.gz") as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    tracked = {"Makefile", "constraints.txt", "mkdocs.yml", ".ci/run", ".ci/release", "SECURITY.md"}
    tracked |= {"deploy/container/server.lock", "docs/index.md", "examples/go/main.go", "tests/conftest.py"}
    assert tracked <= names


def make(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a goal of the Makefile, as in a checkout without an environment."""
    for name in ("Makefile", "pyproject.toml"):
        (folder / name).write_text(read(ROOT / name), encoding="utf-8")
    lock = folder / "deploy" / "container" / "server.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    return subprocess.run(
        ["make", *words], cwd=folder, env=os.environ, capture_output=True, text=True, timeout=60, check=False
    )


def program(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_python_that_is_too_old_is_named_at_once(tmp_path: Path) -> None:
    python = program(tmp_path / "python3", OLD_PYTHON)
    done = make(tmp_path, "run", f"PYTHON={python}")
    assert done.returncode != 0
    assert f"Penstock needs Python 3.11 or newer; {python} is Python 3.10.13." in done.stderr
    assert "PYTHON=" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_errors_of_pip_are_shown(tmp_path: Path) -> None:
    program(tmp_path / ".venv" / "bin" / "python", FAILING_PIP)
    done = make(tmp_path, "run")
    assert done.returncode != 0
    assert "Installing the server and its log into .venv: 260 MB." in done.stdout
    assert "ERROR: No matching distribution found for pyarrow\n" in done.stderr
    assert "output is in .venv/install.log" in done.stderr


def test_workflow_runs_what_a_change_has_to_pass() -> None:
    [job] = read_yaml(ROOT / ".github" / "workflows" / "tests.yml")["jobs"].values()
    assert job["steps"][-1]["run"] == ".ci/run"
    assert os.access(ROOT / ".ci" / "run", os.X_OK) and os.access(ROOT / ".ci" / "release", os.X_OK)


@pytest.mark.parametrize("name", ["fault", "idea"])
def test_form_of_an_issue_asks_for_something(name: str) -> None:
    form = read_yaml(ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml")
    assert form["name"] and form["description"]
    asked = [each for each in form["body"] if each["type"] != "markdown"]
    assert any(each.get("validations", {}).get("required") for each in asked)
    assert len({each["id"] for each in asked}) == len(asked)


def test_hooks_of_a_commit_start_programs_of_the_environment() -> None:
    [local] = read_yaml(ROOT / ".pre-commit-config.yaml")["repos"]
    assert {hook["entry"].split()[0] for hook in local["hooks"]} <= {
        f".venv/bin/{each}" for each in ("ruff", "lint-imports", "python")
    }
