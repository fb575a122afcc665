"""What a job says when it is over."""

from typing import Any

from msgspec import Struct

Row = dict[str, Any]


class Report(Struct, kw_only=True):
    """The outcome of a job: plain facts first, then whatever comes in rows.

    Names are lower case with underscores and units (`rows`, `bytes`, `took_s`). Values are what JSON can say;
    a fact may be a mapping, which is shown with dots in its names.
    """

    job: str
    facts: Row
    tables: dict[str, list[Row]] = {}
    """Rows by the name of their table; all rows of a table have the same columns."""
    is_clean: bool = True
    """Nothing was found that someone should look at. If it is not, the command ends with 1."""
    was_stopped: bool = False
    """It ended because it was told to, not because there was nothing left to do."""
    took_s: float = 0.0
    """Set when the job is over; without the start of Spark."""
    spark_start_s: float | None = None
    """How long Spark took to start; None if the job did without."""


def counted(number: int, one: str, many: str | None = None) -> str:
    """So many of something, in words for people."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
