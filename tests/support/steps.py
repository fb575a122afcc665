"""Work in steps, done at once."""

from typing import TypeVar

from penstock.core.runtime.background import Steps

T = TypeVar("T")


def take_all(steps: Steps[T]) -> T:
    """Take all steps; return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
