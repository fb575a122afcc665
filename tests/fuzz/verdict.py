"""The judge of a parser: it answers or raises one of our errors, and takes no more steps than it should.

A step is a line of Python that is run. It is counted for some of the cases only, because counting is
slow; a parser that never ends is stopped by the time limit of the test, and the case is told as well.
"""

import sys
import tracemalloc
from collections.abc import Callable, Sized
from random import Random
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

import pytest
from msgspec import Struct

from penstock.errors import PenstockError

COUNTED_EVERY = 100
"""Of so many cases the steps of one are counted."""
SMALL = 100
"""What a case weighs beside its size: the smallest one needs some steps as well."""

AnyCase = TypeVar("AnyCase", bound=Sized)


class Tally(Struct):
    """How the cases ended, so that a test can tell that it tried both kinds."""

    taken: int = 0
    refused: int = 0
    most_steps: float = 0.0
    """For each byte or character, of the cases whose steps were counted."""


class Steps:
    """Counts the lines that are run inside a `with`."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.count += event == "line"
        return self._trace


def judge(
    parse: Callable[[AnyCase], object],
    make: Callable[[Random], AnyCase],
    dice: Random,
    count: int,
    *,
    steps_per_unit: int,
    error: type[PenstockError] = PenstockError,
) -> Tally:
    """Let a parser have its cases; fails with the first one that it does not survive."""
    tally = Tally()
    for number in range(count):
        case = make(dice)
        try:
            if number % COUNTED_EVERY == 0:
                _count_steps(parse, case, tally, steps_per_unit)
            parse(case)
            tally.taken += 1
        except error:
            tally.refused += 1
        except BaseException as other:  # that of the time limit is no Exception
            pytest.fail(f"case {number}, {case!r}, ended with {type(other).__name__}: {other}")
    return tally


def _count_steps(
    parse: Callable[[AnyCase], object], case: AnyCase, tally: Tally, steps_per_unit: int
) -> None:
    try:
        with Steps() as steps:
            parse(case)
    finally:
        share = steps.count / (len(case) + SMALL)
        tally.most_steps = max(tally.most_steps, share)
        assert share <= steps_per_unit, f"{steps.count} steps for a size of {len(case)}"


def peak_bytes(action: Callable[[], object]) -> int:
    """The most memory that was in use at the same time on account of this."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
