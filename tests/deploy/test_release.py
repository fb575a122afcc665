"""A release and the way to it: one version, whole archives, a Makefile that explains itself, forge files."""

import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from penstock import __version__
from tests.deploy.files import DEPLOY, ROOT, read, read_yaml
from tests.support.servers import bare_environment

NO_COMPILER = {"CC": "/nonexistent/cc"}
MISSING = "There is no C compiler (/nonexistent/cc)."
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
    """Folder with wheel and sdist, as a machine without a C compiler builds them."""
    folder = tmp_path_factory.mktemp("dist")
    done = build(folder, **NO_COMPILER)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"This build of Penstock is pure Python, and slower. {MISSING}" in done.stdout + done.stderr
    return folder


def build(folder: Path, *flags: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Build with the tools of the tests, which needs no network."""
    words = [sys.executable, "-m", "build", "--no-isolation", *flags, "--outdir", str(folder), str(ROOT)]
    environment = {**bare_environment(), **variables}
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=170, check=False)


def test_compiled_wheel_that_cannot_be_built_is_an_error(tmp_path: Path) -> None:
    done = build(tmp_path, "--wheel", PENSTOCK_BUILD="compiled", **NO_COMPILER)
    assert done.returncode != 0
    assert MISSING in done.stdout + done.stderr
    assert not list(tmp_path.iterdir())


def test_unknown_build_is_an_error(tmp_path: Path) -> None:
    done = build(tmp_path, "--wheel", PENSTOCK_BUILD="fast")
    assert done.returncode != 0
    assert "PENSTOCK_BUILD is 'fast'; it may be 'compiled' or 'pure'" in done.stdout + done.stderr


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
    tracked = {
        "Makefile",
        "constraints.txt",
        "hatch_build.py",
        "mkdocs.yml",
        ".ci/run",
        ".ci/release",
        "SECURITY.md",
    }
    tracked |= {"deploy/container/server.lock", "docs/index.md", "examples/go/main.go", "tests/conftest.py"}
    assert tracked <= names


def make(folder: Path, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run a goal of the Makefile, as in a checkout without an environment unless there is one already."""
    if not (folder / "Makefile").exists():
        check_out(folder)
    outer = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}  # of a make that runs the tests
    environment = {name: value for name, value in os.environ.items() if name not in outer} | variables
    return subprocess.run(
        ["make", *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def check_out(folder: Path) -> None:
    """Write the files of a checkout that the Makefile reads."""
    for name in ("Makefile", "pyproject.toml", "hatch_build.py"):
        (folder / name).write_text(read(ROOT / name), encoding="utf-8")
    lock = folder / "deploy" / "container" / "server.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    """A checkout whose environment is made; its `penstock` prints the path of modules."""
    check_out(tmp_path)
    program(tmp_path / ".venv" / "bin" / "python", f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    program(tmp_path / ".venv" / "bin" / "penstock", '#!/bin/sh\necho "path: $PYTHONPATH"\n')
    (tmp_path / ".venv" / ".installed-to-run").touch()
    return tmp_path


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


def test_server_without_a_compiler_is_pure_and_a_line_says_so(ready: Path) -> None:
    done = make(ready, "run", PYTHONPATH="", **NO_COMPILER)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"The server runs as pure Python, and slower. {MISSING}\npath: \n"


def test_server_uses_the_compiled_hot_path_of_its_sources(ready: Path) -> None:
    (ready / ".venv" / "compiled").mkdir()
    done = make(ready, "run", PYTHONPATH="/elsewhere")
    assert (done.returncode, done.stdout) == (0, f"path: {ready}/.venv/compiled:/elsewhere\n")


def test_compiled_hot_path_of_older_sources_is_not_used(ready: Path) -> None:
    (ready / ".venv" / "compiled").mkdir()
    os.utime(ready / ".venv" / "compiled", (0, 0))
    done = make(ready, "run", PYTHONPATH="", **NO_COMPILER)
    assert done.stdout.endswith("\npath: \n")


def test_hot_path_that_did_not_compile_is_not_tried_again(ready: Path) -> None:
    (ready / ".venv" / ".compile-failed").touch()
    done = make(ready, "run", PYTHONPATH="", CC=sys.executable)
    assert "the hot path did not compile; .venv/compile.log says why.\npath: \n" in done.stdout
    assert not (ready / ".venv" / ".compile-start").exists()


def test_goal_that_compiles_names_what_is_missing(ready: Path) -> None:
    done = make(ready, "compile", **NO_COMPILER)
    assert (done.returncode != 0, done.stderr.splitlines()[0]) == (True, MISSING)


def test_compiling_that_fails_leaves_nothing_but_the_reason(ready: Path) -> None:
    done = make(ready, "compile", CC=sys.executable)  # there are no sources
    assert done.returncode != 0
    assert (
        done.stderr.count("The hot path did not compile; all of pip's output is in .venv/compile.log.\n") == 1
    )
    assert {path.name for path in (ready / ".venv").iterdir() if "compile" in path.name} == {
        *(".compile-failed", ".compile-lock", ".compile-start", "compile.log"),
    }


def test_goal_that_cleans_leaves_what_was_checked_out(ready: Path) -> None:
    made = ["__pycache__", "src/__pycache__", "examples/with_pytest/.pytest_cache", "dist"]
    for name in (*made, "tests", "docs", "bench"):
        (ready / name).mkdir(parents=True)
    done = make(ready, "clean")
    assert done.returncode == 0, done.stderr
    assert [name for name in (".venv", *made) if (ready / name).exists()] == []
    assert (ready / "Makefile").exists() and (ready / "examples" / "with_pytest").exists()


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
