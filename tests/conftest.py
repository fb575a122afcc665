"""What every test may ask for."""

import os

import pytest


@pytest.fixture(scope="session")
def scale() -> int:
    """How many times the usual amount a test should use: 1, or 10 when `make soak` runs it."""
    return 10 if os.environ.get("PENSTOCK_SOAK") else 1


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting comes from the environment the tests happen to run in."""
    for name in list(os.environ):
        if name.startswith("PENSTOCK_") and name != "PENSTOCK_SOAK":
            monkeypatch.delenv(name)
