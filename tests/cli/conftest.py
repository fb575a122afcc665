"""What the tests of all commands share."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def untold_logs() -> Iterator[None]:
    """A command that sets the program's log up does so for its own test alone."""
    yield
    structlog.reset_defaults()
