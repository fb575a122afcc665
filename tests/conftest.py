"""What every test may ask for."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest


class RunningServer(NamedTuple):
    """A real server in a process of its own, on loopback."""

    port: int
    process: "subprocess.Popen[str]"


@pytest.fixture(scope="session")
def scale() -> int:
    """How many times the usual amount a test should use: 1, or 10 when `make soak` runs it."""
    return 10 if os.environ.get("PENSTOCK_SOAK") else 1


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting comes from the environment the tests happen to run in."""
    for name in list(os.environ):
        if is_setting(name):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def server() -> Iterator[RunningServer]:
    """`penstock serve` with default settings on a free port; shared, so use topics and names of your own."""
    words = [sys.executable, "-m", "penstock", "serve", "--mqtt-port", "0", "--log-level", "warning"]
    environment = {name: value for name, value in os.environ.items() if not is_setting(name)}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield RunningServer(printed_port(process), process)
        finally:
            process.terminate()


def is_setting(variable: str) -> bool:
    return variable.startswith("PENSTOCK_") and variable != "PENSTOCK_SOAK"


def printed_port(process: "subprocess.Popen[str]") -> int:
    """The MQTT port, as the server tells whoever started it."""
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"mqtt\b.*:(\d+)", line):
            return int(found[1])
    raise RuntimeError(f"the server ended with {process.wait()} before it listened")
