"""Artifacts that test workers share: each is built or fetched once, under a file lock, and appears complete.

Programs and packages of others, always with a version, stay in the user's cache for later runs:

    folder = npm_install("mqtt@5.14.1")                                # folder/node_modules
    folder = go_build(HERE / "programs", "./mqtt")                      # folder/mqtt
    program = cargo_install("mqttv5-cli@1.0.0")

Each skips its test where the tool is missing or nothing can be fetched; `.ci/run` takes a skipped test for a
failure. A test whose fetch compiles for long needs `pytest.mark.timeout`. For anything else there is
`build_once` of `bench.artifacts`.
"""

import hashlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.artifacts import FetchError, build_once, run_command, user_cache

CACHE = user_cache("penstock-tests")
FETCHES = 3
"""Attempts to fetch something: networks fail for a moment."""
FETCH_S = 50
"""Time for each attempt; all of them end before the default timeout of a test."""
COMPILE_S = 600
"""Time for an attempt that compiles what it fetches."""


def npm_install(*packages: str) -> Path:
    """Folder whose `node_modules` has these packages, as `name@version`."""

    def install(folder: Path) -> None:
        run_command(
            FETCH_S,
            "npm",
            "install",
            "--no-audit",
            "--no-fund",
            "--silent",
            "--prefix",
            str(folder),
            *packages,
        )

    return _fetch_once("npm", packages, install, "npm", "node")


def go_build(module: Path, *packages: str) -> Path:
    """Folder with the programs of packages, compiled where a `go.mod` and a `go.sum` pin what they need.

    They are compiled again when a file of that folder changes.
    """
    sources = [*sorted(module.glob("**/*.go")), module / "go.mod", module / "go.sum"]
    contents = hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()[:16]

    def build(folder: Path) -> None:
        words = ("build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-o", f"{folder}/", *packages)
        run_command(COMPILE_S, "go", *words, folder=module)

    return _fetch_once("go", (contents, *packages), build, "go")


def cargo_install(crate: str) -> Path:
    """Program of a Rust crate, as `name@version`."""

    def install(folder: Path) -> None:
        words = ("install", "--quiet", "--locked", "--no-track", "--debug", "--root", str(folder), crate)
        run_command(COMPILE_S, "cargo", *words, environment={"CARGO_TARGET_DIR": str(folder / "target")})
        shutil.rmtree(folder / "target")

    return _only_file(_fetch_once("cargo", (crate,), install, "cargo") / "bin")


def _fetch_once(kind: str, names: tuple[str, ...], fetch: Callable[[Path], object], *tools: str) -> Path:
    """Folder in the cache, named after what is in it; its test is skipped if it cannot be made."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}")
    folder = CACHE / "-".join([kind, *(re.sub(r"[^\w.@]+", "-", name).strip("-") for name in names)])
    failure = ""
    for _ in range(FETCHES):
        try:
            return build_once(folder, fetch)
        except FetchError as error:
            failure = str(error)
    return pytest.skip(f"{' and '.join(names)} cannot be fetched: {failure[-300:]}")


def _only_file(folder: Path) -> Path:
    [file] = folder.iterdir()
    return file
