"""Options of the job insights, and the options to read the log."""

import json
from collections.abc import Mapping
from pathlib import Path
from zlib import crc32

from msgspec import Struct

from penstock.lake import lake_messages, lake_path, missing_folder
from penstock.lake.layout import DEFAULT_BUCKETS
from penstock.lake.table import make_lake
from penstock.spark.connection import Connection
from penstock.spark.jobs.insights.state import Settings
from penstock.spark.jobs.insights.windows import COLUMNS, DROPS_TOPIC
from penstock.spark.jobs.run import FOLLOW_RETRY_S, check_server
from penstock.spark.options import read_options


class InsightsOptions(Struct, frozen=True, kw_only=True):
    """Options of the job."""

    lake: str
    server: Mapping[str, str]
    """Connection options of `format("penstock")`."""
    filters: tuple[str, ...] = ("#",)
    drops: bool = True
    """Include reports of undelivered messages."""
    start: str | None = None
    """Start of a new job: `earliest`, `latest`, a cursor or a time."""
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
        """Validate the options.

        Raises:
            ValueError: a number is out of range.
            PenstockError: a filter, a cursor, the lake or the address is not valid.
        """
        if min(self.batch_rows, self.batch_bytes, self.prefix_levels, self.hot_topics) < 1:
            raise ValueError("batch rows, batch bytes, prefix levels and hot topics must be at least 1")
        if self.interval_s <= 0 or self.lateness_s < 0 or self.hold_lapse_s < 1:
            raise ValueError("intervals must be more than 0 seconds, and a hold at least 1 second")
        read_options(self.read_options(), is_stream=True)
        self.connection()

    def connection(self) -> Connection:
        """The connection to the server.

        Raises:
            InvalidOption: an option is not valid.
        """
        found = read_options(self._server(), is_stream=False).connection
        if found is None:
            raise ValueError("insights need the address of a server")
        return found

    def read_options(self) -> dict[str, str]:
        """Options of `format("penstock")` to read the messages."""
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
        """Filters of the topics to read: those given, and the topic of drop reports."""
        return [*self.filters, DROPS_TOPIC] if self.drops else list(self.filters)

    def preflight(self) -> None:
        """Preflight check without Spark; creates the folder of the lake.

        Raises:
            ValueError: a number is out of range.
            PenstockError: the lake is not writable, or the server is unavailable and not waited for.
        """
        self.check()
        check_server(self.connection(), self.all_filters, is_patient=self.follow)
        make_lake(self.lake)

    def _server(self) -> dict[str, str]:
        return {**({"retryFor": str(FOLLOW_RETRY_S)} if self.follow else {}), **self.server}

    @property
    def hold_name(self) -> str:
        """Name of the retention hold, one per lake."""
        return f"insights-{crc32(str(lake_path(self.lake)).encode()):08x}"

    @property
    def checkpoint(self) -> Path:
        """Checkpoint folder of the streaming query."""
        return lake_path(self.lake) / "_checkpoints" / "insights"

    def settings(self) -> Settings:
        """Settings of the aggregation; the number of buckets is that of the lake."""
        table = lake_messages(self.lake)
        buckets = table.manifest().buckets if table.exists() else DEFAULT_BUCKETS
        return Settings(
            lateness_s=self.lateness_s,
            prefix_levels=self.prefix_levels,
            hot_topics=self.hot_topics,
            buckets=buckets or DEFAULT_BUCKETS,
        )
