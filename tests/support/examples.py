"""Amounts of Hypothesis examples: few in the suite, ten times as many in a soak."""

import os
from typing import Any

from hypothesis import HealthCheck, settings

SOAK_FACTOR = 10
DEFAULT = 30
"""Examples of a test that names no amount, in the suite."""


def is_soak() -> bool:
    """`make soak` runs the tests."""
    return bool(os.environ.get("PENSTOCK_SOAK"))


def examples(count: int, **more: Any) -> settings:
    """Settings with an amount of examples for the suite, and others."""
    return settings(max_examples=count * SOAK_FACTOR if is_soak() else count, **more)


def load_profiles() -> None:
    """Register the profiles and load the one of this run.

    The time that an example takes depends on the machine more than on the code. The examples of the suite are
    the same each time, so that a change is judged by what it changes; a soak looks for new ones.
    """
    usual = examples(
        DEFAULT, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=not is_soak()
    )
    settings.register_profile("any machine", usual)
    settings.register_profile("coverage", usual, max_examples=10)
    settings.load_profile("any machine")
