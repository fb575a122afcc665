"""What all fuzzing asks for: dice, and how often to throw them."""

from random import Random

import pytest

from tests.fuzz.seeds import new_dice


@pytest.fixture
def dice() -> Random:
    return new_dice()


@pytest.fixture
def many(scale: int) -> int:
    """How many cases a quick parser gets: a million in a soak."""
    return 20_000 if scale == 1 else 1_000_000
