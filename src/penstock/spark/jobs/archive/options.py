"""Options of an archive, and their compatibility with an existing lake."""

import json
from collections.abc import Mapping

from msgspec import Struct

from penstock.lake import InvalidLake, Manifest, lake_path
from penstock.lake.layout import MAX_BUCKETS
from penstock.spark.connection import Connection
from penstock.spark.errors import InvalidOption
from penstock.spark.jobs.run import FOLLOW_RETRY_S
from penstock.spark.options import EARLIEST, PositionSpec, read_options
from penstock.wire.arrow import LOG_COLUMNS

FORMATS = ("parquet", "delta")

_START = "startingOffsets"


class ArchiveOptions(Struct, frozen=True, kw_only=True):
    """Options of an archive."""

    lake: str
    server: Mapping[str, str]
    """Connection options of `format("penstock")`."""
    filters: tuple[str, ...] = ()
    """Empty: the filters of the lake, or all topics if it is new."""
    buckets: int | None = None
    batch_rows: int = 2_000_000
    batch_bytes: int = 256 << 20
    start: str | None = None
    """Start of a new lake: `earliest`, `latest`, a cursor or a time."""
    follow: bool = False
    interval_s: float = 10.0
    format: str = "parquet"
    keep_going: bool = False
    hold: bool = True
    hold_lapse_s: float = 3 * 86_400.0

    def connection(self) -> Connection:
        """The connection to the server.

        Raises:
            InvalidOption: an option is not valid.
        """
        retry = {"retryFor": str(FOLLOW_RETRY_S)} if self.follow else {}
        found = read_options({**retry, **self.server}, is_stream=False).connection
        if found is None:
            raise ValueError("an archive needs the address of a server")
        return found

    def start_position(self) -> PositionSpec:
        """The start of a new lake.

        Raises:
            InvalidOption: it is not valid.
        """
        try:
            return read_options({_START: self.start or EARLIEST}, is_stream=False).starting
        except InvalidOption as error:
            raise InvalidOption(str(error).replace(_START, "--from", 1)) from None

    def check(self) -> None:
        """Validate the options.

        Raises:
            ValueError: a number is out of range, or the format is unknown.
            PenstockError: the lake, a filter, a cursor or the address is not valid.
        """
        if self.format not in FORMATS:
            raise ValueError(f"{self.format!r} is not a valid format: use {' or '.join(FORMATS)}")
        if self.buckets is not None and not 1 <= self.buckets <= MAX_BUCKETS:
            raise ValueError(f"a lake has 1 to {MAX_BUCKETS} buckets, not {self.buckets}")
        if min(self.batch_rows, self.batch_bytes) < 1 or self.interval_s <= 0 or self.hold_lapse_s < 1:
            raise ValueError("a batch needs at least 1 row and 1 byte, and intervals must be more than 0")
        lake_path(self.lake)
        self.connection()
        self.start_position()
        if self.filters:
            read_options({"filter": _as_json(self.filters)}, is_stream=False)

    def check_fit(self, manifest: Manifest) -> None:
        """Refuse options that contradict an existing lake.

        Raises:
            InvalidLake: it has other topics or buckets.
        """
        if self.filters and set(self.filters) != set(manifest.filters):
            there, wanted = ", ".join(manifest.filters) or "all topics", ", ".join(self.filters)
            raise InvalidLake(f"this lake has {there}; archive {wanted} into another lake")
        if self.buckets is not None and self.buckets != manifest.buckets:
            raise InvalidLake(f"this lake has {manifest.buckets} buckets, which cannot be changed")

    def check_log(self, manifest: Manifest, log_id: str) -> None:
        """Refuse to archive two logs into one lake.

        Raises:
            InvalidLake: the server has another log.
        """
        if log_id != manifest.log_id:
            raise InvalidLake(
                f"this lake has the log {manifest.log_id}, but the server at {self.connection().address} has "
                f"the log {log_id}: archive it into another lake"
            )

    def read_options(self, after: str, until: str, filters: tuple[str, ...], missing: str) -> dict[str, str]:
        """Options of `format("penstock")` to read one batch."""
        read = {_START: after, "endingOffsets": until, "columns": ",".join(LOG_COLUMNS)}
        if filters:
            read["filter"] = _as_json(filters)
        if self.keep_going:
            read |= {"failOnDataLoss": "false", "missing": missing}
        return {**self.server, **read}


def _as_json(filters: tuple[str, ...]) -> str:
    return json.dumps(list(filters))
