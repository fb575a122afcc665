"""What a data directory needs beside Penstock itself."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from penstock.errors import InvalidConfig
from penstock.storage.extra import PACKAGES, require_extra


@pytest.mark.parametrize("package", PACKAGES)
def test_a_missing_package_is_told_with_what_to_install(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it could not be found
    with pytest.raises(InvalidConfig) as caught:
        require_extra()
    assert (
        str(caught.value)
        == "data_dir: needs the extra `log`: pip install 'penstock[log]', or '.[log]' in a checkout"
    )


def test_whoever_needs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, PACKAGES[0], None)
    with pytest.raises(InvalidConfig, match=r"^penstock log: needs"):
        require_extra("penstock log")


ASKING = "from penstock.storage.extra import require_extra; require_extra()"
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
    told = f"{script}\nimport sys; print(sorted(set({PACKAGES}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_extra_brings_these_packages() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = project["project"]["optional-dependencies"]["log"]
    assert {line.partition(">=")[0] for line in wanted} == set(PACKAGES)
