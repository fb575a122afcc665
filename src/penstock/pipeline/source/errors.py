"""What can be wrong with reading topics as a table."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from penstock.errors import PenstockError

P = ParamSpec("P")
T = TypeVar("T")


class InvalidOption(PenstockError):
    """An option of `format("penstock")` is unknown, misspelt or out of range; the text names it."""

    code = "invalid-option"


class DataLoss(PenstockError):
    """Rows that were asked for are not there any more; the text names their offsets and the reason."""

    code = "data-loss"


def plainly(call: Callable[P, T]) -> Callable[P, T]:
    """For what Spark calls: errors of ours come without the way they took, which Spark would print above."""

    @wraps(call)
    def told(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except PenstockError as error:
            raise error.with_traceback(None) from None

    return told
