"""What an audit finds."""

from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What is said of some messages of a topic."""

    MISSING = "missing"
    """They are not in the lake, and should be."""
    KNOWN = "known"
    """They are not in the lake, for a reason that was declared or is in order."""
    DOUBLE = "double"
    """They are in the lake more than once."""
    OUT_OF_ORDER = "out-of-order"
    """They do not stand in the order in which they were published."""
    ONLY_IN_LOG = "only-in-log"
    """The log has them, and the lake should."""
    CLAIM = "claim"
    """So many messages of a bucket (`epoch`), with offsets from `first` to `last`, need room in a reason."""
    SUM = "sum"
    """So many messages of all topics are known to be missing for a reason."""
    TALLY = "tally"
    """Nothing: it says how much was looked at."""


class Finding(NamedTuple):
    """Something about consecutive sequences of a topic."""

    kind: str
    topic: str
    epoch: int
    first: int
    last: int
    messages: int
    reason: str = ""
    path: str = ""
    """The data file it is about."""
    other: str = ""
    """For a double: the file that has it too."""
    after: int | None = None
    """It was published behind this offset ..."""
    before: int | None = None
    """... and before this one."""
