"""What the job is told, and how it reads the log."""

import json
from collections.abc import Mapping
from pathlib import Path
from zlib import crc32

from msgspec import Struct

from penstock.pipeline.jobs.asking import ask_first
from penstock.pipeline.jobs.insights.state import Settings
from penstock.pipeline.jobs.insights.windows import COLUMNS, DROPS_TOPIC
from penstock.pipeline.lake import lake_messages, lake_path, missing_folder
from penstock.pipeline.lake.table import make_lake
from penstock.pipeline.source.connection import Connection
from penstock.pipeline.source.options import read_options

BUCKETS = 8
"""Into how many a new lake is split."""
FOLLOW_RETRY_S = 600.0
"""How long a job that never ends waits for a server that is away."""


class InsightsOptions(Struct, frozen=True, kw_only=True):
    """Everything that the job is told."""

    lake: str
    server: Mapping[str, str]
    """Options of `format("penstock")` that say where the server is and who asks."""
    filters: tuple[str, ...] = ("#",)
    drops: bool = True
    """Whether what was not delivered is looked at."""
    start: str | None = None
    """Where a new job begins: `earliest`, `latest`, a cursor or a time."""
    follow: bool = False
    interval_s: float = 10.0
    batch_rows: int = 2_000_000
    batch_bytes: int = 256 << 20
    lateness_s: float = 10.0
    prefix_levels: int = 1
    hot_topics: int = 20
    publish: bool = False
    keep_going: bool = False
    hold: bool = True
    hold_lapse_s: float = 3 * 86_400.0

    def check(self) -> None:
        """Refuse what makes no sense, before anything is started.

        Raises:
            ValueError: a number is out of range.
            PenstockError: a filter, a cursor, the lake or the server's address is not what it should be.
        """
        if min(self.batch_rows, self.batch_bytes, self.prefix_levels, self.hot_topics) < 1:
            raise ValueError(
                "a batch has a row and a byte at least, a prefix a level, and there is a hot topic"
            )
        if self.interval_s <= 0 or self.lateness_s < 0 or self.hold_lapse_s < 1:
            raise ValueError("intervals are longer than nothing, and a hold lasts a second at least")
        read_options(self.read_options(), is_stream=True)
        self.connection()

    def connection(self) -> Connection:
        """The way to the server.

        Raises:
            InvalidOption: an option of it is not what it should be.
        """
        found = read_options(self._server(), is_stream=False).connection
        if found is None:
            raise ValueError("insights need the address of a server")
        return found

    def read_options(self) -> dict[str, str]:
        """Options of `format("penstock")` for the messages."""
        read = {
            "filter": json.dumps(self.all_filters),
            "columns": ",".join(COLUMNS),
            "maxRowsPerTrigger": str(self.batch_rows),
            "maxBytesPerTrigger": str(self.batch_bytes),
        }
        if self.start is not None:
            read["startingOffsets"] = self.start
        if self.hold:
            read |= {"hold": self.hold_name, "holdLapse": str(self.hold_lapse_s)}
        if self.keep_going:
            read |= {"failOnDataLoss": "false", "missing": str(missing_folder(self.lake))}
        return {**self._server(), **read}

    @property
    def all_filters(self) -> list[str]:
        """The topics that are read: those that are asked for, and the one that tells of drops."""
        return [*self.filters, DROPS_TOPIC] if self.drops else list(self.filters)

    def look_first(self) -> None:
        """Check everything that needs no Spark, and make the folder of the lake.

        Raises:
            ValueError: a number is out of range.
            PenstockError: the lake cannot be written, or the server is not there and not waited for.
        """
        self.check()
        ask_first(self.connection(), self.all_filters, is_patient=self.follow)
        make_lake(self.lake)

    def _server(self) -> dict[str, str]:
        return {**({"retryFor": str(FOLLOW_RETRY_S)} if self.follow else {}), **self.server}

    @property
    def hold_name(self) -> str:
        """The name of the hold that keeps what is not read: another one for each lake."""
        return f"insights-{crc32(str(lake_path(self.lake)).encode()):08x}"

    @property
    def checkpoint(self) -> Path:
        """Where Spark remembers how far the job has come."""
        return lake_path(self.lake) / "_checkpoints" / "insights"

    def settings(self) -> Settings:
        """How insights are made; the buckets are those of the lake."""
        table = lake_messages(self.lake)
        buckets = table.manifest().buckets if table.exists() else BUCKETS
        return Settings(
            lateness_s=self.lateness_s,
            prefix_levels=self.prefix_levels,
            hot_topics=self.hot_topics,
            buckets=buckets or BUCKETS,
        )
