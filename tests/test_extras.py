"""What parts of Penstock need beside Penstock itself."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from penstock.errors import InvalidConfig
from penstock.extras import PACKAGES, how_to_get, require_extra

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
    said = "'/opt/my python' -m pip install 'penstock[log]', or '.[log]' in a checkout"
    assert how_to_get("log") == said


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
