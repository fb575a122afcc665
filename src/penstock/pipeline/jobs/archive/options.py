"""What an archive is told, and whether that fits the lake that is there."""

import json
from collections.abc import Mapping

from msgspec import Struct

from penstock.core.archive import LOG_COLUMNS
from penstock.pipeline.lake import InvalidLake, Manifest, lake_path
from penstock.pipeline.lake.layout import MAX_BUCKETS
from penstock.pipeline.source.connection import Connection
from penstock.pipeline.source.errors import InvalidOption
from penstock.pipeline.source.options import EARLIEST, Place, read_options

BUCKETS = 8
FORMATS = ("parquet", "delta")

_START = "startingOffsets"

FOLLOW_RETRY_S = 600.0
"""How long the tasks of an archive that never ends wait for a server that is away."""


class ArchiveOptions(Struct, frozen=True, kw_only=True):
    """Everything that an archive is told."""

    lake: str
    server: Mapping[str, str]
    """Options of `format("penstock")` that say where the server is and who asks."""
    filters: tuple[str, ...] = ()
    """Nothing: what the lake has, or all topics if it is new."""
    buckets: int | None = None
    batch_rows: int = 2_000_000
    batch_bytes: int = 256 << 20
    start: str | None = None
    """Where a new lake begins: `earliest`, `latest`, a cursor or a time."""
    follow: bool = False
    interval_s: float = 10.0
    format: str = "parquet"
    keep_going: bool = False
    hold: bool = True
    hold_lapse_s: float = 3 * 86_400.0

    def connection(self) -> Connection:
        """The way to the server.

        Raises:
            InvalidOption: an option of it is not what it should be.
        """
        retry = {"retryFor": str(FOLLOW_RETRY_S)} if self.follow else {}
        found = read_options({**retry, **self.server}, is_stream=False).connection
        if found is None:
            raise ValueError("an archive needs the address of a server")
        return found

    def place(self) -> Place:
        """Where a new lake begins.

        Raises:
            InvalidOption: it is neither a cursor nor a time.
        """
        try:
            return read_options({_START: self.start or EARLIEST}, is_stream=False).starting
        except InvalidOption as error:
            raise InvalidOption(str(error).replace(_START, "--from", 1)) from None

    def check(self) -> None:
        """Refuse what makes no sense, before anything is started.

        Raises:
            ValueError: a number is out of range, or the format is unknown.
            PenstockError: the lake, a filter, a cursor or the address is not what it should be.
        """
        if self.format not in FORMATS:
            raise ValueError(f"the format is one of {', '.join(FORMATS)}, not {self.format!r}")
        if self.buckets is not None and not 1 <= self.buckets <= MAX_BUCKETS:
            raise ValueError(f"a lake has 1 to {MAX_BUCKETS} buckets")
        if min(self.batch_rows, self.batch_bytes) < 1 or self.interval_s <= 0 or self.hold_lapse_s < 1:
            raise ValueError("a batch has a row and a byte at least, and intervals are longer than nothing")
        lake_path(self.lake)
        self.connection()
        self.place()
        if self.filters:
            read_options({"filter": _as_json(self.filters)}, is_stream=False)

    def check_fit(self, manifest: Manifest) -> None:
        """Refuse what would change a lake that is there.

        Raises:
            InvalidLake: it has other topics or buckets.
        """
        if self.filters and set(self.filters) != set(manifest.filters):
            there, wanted = ", ".join(manifest.filters) or "all topics", ", ".join(self.filters)
            raise InvalidLake(f"this lake was made for {there}; archive {wanted} into another one")
        if self.buckets is not None and self.buckets != manifest.buckets:
            raise InvalidLake(f"this lake has {manifest.buckets} buckets, for ever")

    def check_log(self, manifest: Manifest, log_id: str) -> None:
        """Refuse to put two logs into one lake.

        Raises:
            InvalidLake: the server has another log.
        """
        if log_id != manifest.log_id:
            raise InvalidLake(
                f"this lake has the log {manifest.log_id}, and the server at {self.connection().address} has "
                f"the log {log_id}: another log needs another lake"
            )

    def read_options(self, after: str, until: str, filters: tuple[str, ...], missing: str) -> dict[str, str]:
        """Options of `format("penstock")` for the rows of one batch."""
        read = {_START: after, "endingOffsets": until, "columns": ",".join(LOG_COLUMNS)}
        if filters:
            read["filter"] = _as_json(filters)
        if self.keep_going:
            read |= {"failOnDataLoss": "false", "missing": missing}
        return {**self.server, **read}


def _as_json(filters: tuple[str, ...]) -> str:
    return json.dumps(list(filters))
