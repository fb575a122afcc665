"""How long windows are, which of them are over, and how those of one length become longer ones."""

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from penstock.pipeline.jobs.insights.windows import WINDOW_US


class Grain(Struct, frozen=True):
    """A length of windows; they begin at multiples of it, in UTC."""

    name: str
    seconds: int

    @property
    def us(self) -> int:
        """Its length in microseconds."""
        return self.seconds * 1_000_000

    def start_of(self, time_us: int) -> int:
        """Where the window begins that a time lies in."""
        return time_us // self.us * self.us


TEN_SECONDS = Grain("10s", WINDOW_US // 1_000_000)
MINUTE = Grain("1m", 60)
HOUR = Grain("1h", 3600)
GRAINS = (TEN_SECONDS, MINUTE, HOUR)


def is_over(table: pa.Table, grain: Grain, until_us: int) -> pa.ChunkedArray:
    """Which rows are of windows that end at a time or before."""
    return pc.less_equal(pc.add(table.column("window"), grain.us), until_us)


def before(table: pa.Table, grain: Grain, until_us: int) -> pa.Table:
    """The rows of windows that end at a time or before."""
    return table.filter(is_over(table, grain, until_us))


def after(table: pa.Table, grain: Grain, until_us: int) -> pa.Table:
    """The rows of the other windows."""
    return table.filter(pc.invert(is_over(table, grain, until_us)))


def widened(table: pa.Table, grain: Grain) -> pa.Table:
    """The same rows as parts of longer windows."""
    starts = pc.multiply(pc.divide(table.column("window"), grain.us), grain.us)
    return table.set_column(table.schema.get_field_index("window"), "window", starts)
