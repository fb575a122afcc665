"""Errors of the connector, and error messages of Spark reduced to their root cause.

An error in a Python worker arrives inside the message of a JVM error, inside that of a job, with three stack
traces. `root_cause` extracts the one sentence that matters, preferably one of Penstock's own errors.
"""

import re
from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from penstock.errors import PenstockError

P = ParamSpec("P")
T = TypeVar("T")

OWN = "penstock."
"""Prefix of the names of Penstock's exceptions in a traceback."""
MAX_LENGTH = 1_000

_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"^(?P<name>[A-Za-z_][\w.]*)(?:: (?P<text>.*))?$")
_END_OF_TEXT = re.compile(r"^\s*$|^\s+SQLSTATE: |^\s+at |^=== |^During handling|^The above exception")
_WRAPPING = re.compile(  # what Spark writes in front of the message of the original error
    r"^Exception in thread \S+ "
    r"|^An error occurred while calling \S+\s*:?\s*"
    r"|^(?:[a-z][\w$]*\.)+\w+: "
    r"|^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: "
    r"|^Job aborted due to stage failure: .*? most recent failure: Lost task .*?\): "
)
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+;?")


class InvalidOption(PenstockError):
    """An option of `format("penstock")` is unknown, misspelt or out of range; the text names it."""

    code = "invalid-option"


class InvalidColumns(PenstockError):
    """The columns of a DataFrame are not those of messages; the text names the column."""

    code = "invalid-columns"


class DataLoss(PenstockError):
    """Requested rows no longer exist; the text names their offsets and the reason."""

    code = "data-loss"


class SparkFailed(PenstockError):
    """Spark failed to run a job; the text is the root cause."""

    code = "spark-failed"


def without_traceback(call: Callable[P, T]) -> Callable[P, T]:
    """Decorator for methods that Spark calls: Penstock's errors lose their traceback.

    Spark would print the traceback above the message.
    """

    @wraps(call)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except PenstockError as error:
            raise error.with_traceback(None) from None

    return called


def is_spark_error(error: BaseException) -> bool:
    """The error comes from Spark, or from the connection to its JVM."""
    return isinstance(error, PySparkException | Py4JError)


def root_cause(error: BaseException) -> str:
    """The root cause of an error, in one line."""
    try:
        text = str(error)
    except (Py4JError, OSError):  # the text is in the JVM, which has exited
        return "Spark's JVM ended"
    return sentence_in(text) or type(error).__name__


def sentence_in(text: str) -> str:
    """The most telling line of an error text: what Python raised, else the first words of the JVM."""
    raised = list(_raised_in(text))
    own = [(name, words) for name, words in raised if name.startswith(OWN)]
    if own:
        return _shorten(own[-1][1])
    if raised:
        name, words = raised[-1]
        return _shorten(f"{name.rpartition('.')[2]}: {words}")
    return _shorten(_first_words(text))


def _raised_in(text: str) -> Iterator[tuple[str, str]]:
    """Name and text of every Python exception whose traceback is part of a text."""
    for part in text.split(_TRACEBACK)[1:]:
        lines = iter(part.splitlines()[1:])
        found = next((_RAISED.match(line) for line in lines if line and not line[0].isspace()), None)
        if found is not None:
            words = [found["text"] or ""]
            for line in lines:
                if _END_OF_TEXT.match(line):
                    break
                words.append(line)
            yield found["name"], _SQLSTATE.sub("", " ".join(words))


def _first_words(text: str) -> str:
    """The text before the first stack trace, without what Spark writes around it."""
    words = re.split(r"\n\s*at |\n=== |\n\nJVM stacktrace:|;\n", text, maxsplit=1)[0].strip()
    while (shorter := _WRAPPING.sub("", words)) != words:
        words = shorter
    return _SQLSTATE.sub("", words)


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_LENGTH else f"{line[:MAX_LENGTH]} ..."
