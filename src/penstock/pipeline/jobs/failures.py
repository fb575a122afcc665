"""Finds the one sentence that matters in what Spark says about a failure.

An error in a Python worker comes back inside the message of a JVM's error, inside that of a job, with three
stack traces. Whoever ran the command wants the sentence in the middle of it, above all if it is one of ours.
"""

import re
from collections.abc import Iterator

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from penstock.errors import PenstockError

OWN = "penstock."
"""How the names of our errors begin."""
LONGEST = 1_000

_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"^(?P<name>[A-Za-z_][\w.]*)(?:: (?P<text>.*))?$")
_END_OF_TEXT = re.compile(r"^\s*$|^\s+SQLSTATE: |^\s+at |^=== |^During handling|^The above exception")
_AROUND = re.compile(  # what Spark writes around the sentence of whoever failed
    r"^Exception in thread \S+ "
    r"|^An error occurred while calling \S+\s*:?\s*"
    r"|^(?:[a-z][\w$]*\.)+\w+: "
    r"|^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: "
    r"|^Job aborted due to stage failure: .*? most recent failure: Lost task .*?\): "
)
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+;?")


class SparkFailed(PenstockError):
    """Spark could not do what a job asked of it; the text is the sentence that says why."""

    code = "spark-failed"


def is_of_spark(error: BaseException) -> bool:
    """Whether an error is one of Spark's, or of the connection to it."""
    return isinstance(error, PySparkException | Py4JError)


def root_cause(error: BaseException) -> str:
    """What went wrong, in one line."""
    try:
        text = str(error)
    except (Py4JError, OSError):  # it is the JVM that would know, and it has gone
        return "Spark's JVM ended"
    return sentence_in(text) or type(error).__name__


def sentence_in(text: str) -> str:
    """The line of an error's text that says most: what Python raised, or else what the JVM says first."""
    raised = list(_raised_in(text))
    own = [(name, words) for name, words in raised if name.startswith(OWN)]
    if own:
        return _cut(own[-1][1])
    if raised:
        name, words = raised[-1]
        return _cut(f"{name.rpartition('.')[2]}: {words}")
    return _cut(_first_words(text))


def _raised_in(text: str) -> Iterator[tuple[str, str]]:
    """The name and the text of every Python exception whose traceback is in a text."""
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
    """The text before the first stack trace, without what Spark puts around it."""
    words = re.split(r"\n\s*at |\n=== |\n\nJVM stacktrace:|;\n", text, maxsplit=1)[0].strip()
    while (shorter := _AROUND.sub("", words)) != words:
        words = shorter
    return _SQLSTATE.sub("", words)


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."
