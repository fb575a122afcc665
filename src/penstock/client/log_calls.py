"""Requests about the log: reading it, positions in it, and holds that keep it from going."""

from collections.abc import Sequence
from datetime import datetime
from urllib.parse import quote

import msgspec

from penstock.client.answers import Hold, LogPosition, LogRanges, read
from penstock.client.log import LogRead
from penstock.client.requests import Requests
from penstock.wire.arrow import MEDIA_TYPE

LOG = "/api/v1/log"
HOLDS = f"{LOG}/holds"


class _Holds(msgspec.Struct):
    holds: list[Hold]


class LogCalls:
    """What a client asks of a server with a data directory; another one answers with the code `no-log`."""

    _requests: Requests

    def read_log(
        self,
        *,
        after: str | None = None,
        start: datetime | str | None = None,
        until: str | None = None,
        filters: Sequence[str] = (),
        columns: Sequence[str] | None = None,
        limit_rows: int | None = None,
    ) -> LogRead:
        """Read the log, from its beginning unless told otherwise, to where it ends now.

        Args:
            after: a cursor, such as `next` of an earlier statement.
            start: instead of a cursor: `"earliest"`, `"latest"`, or a time.
            until: a cursor to stop at.
            filters: only topics that match one of them.
            columns: only these columns.
        """
        connection, response = self._requests.stream(
            LOG,
            {
                "after": after,
                "from": start,
                "until": until,
                "filter": tuple(filters),
                "columns": None if columns is None else ",".join(columns),
                "limit_rows": limit_rows,
            },
            accept=MEDIA_TYPE,
        )
        return LogRead(connection, response)

    def position(
        self, at: datetime | str = "latest", *, after: str | None = None, filters: Sequence[str] = ()
    ) -> LogPosition:
        """A place in the log, `"earliest"`, `"latest"` or a time, and how many rows a cursor is behind it."""
        asked = {"at": at, "after": after, "filter": tuple(filters)}
        return read(self._requests.send("GET", f"{LOG}/position", asked).body, LogPosition)

    def ranges(
        self,
        parts: int,
        *,
        after: str | None = None,
        start: datetime | str | None = None,
        until: str | None = None,
        filters: Sequence[str] = (),
        limit_rows: int | None = None,
        limit_bytes: int | None = None,
    ) -> LogRanges:
        """Split what `read_log` would read into at most so many ranges of about the same size.

        Args:
            limit_rows: let them end before there are more rows than this.
            limit_bytes: the same by what they take as stored; but there is one batch at least.
        """
        asked = {
            "after": after,
            "from": start,
            "until": until,
            "filter": tuple(filters),
            "parts": parts,
            "limit_rows": limit_rows,
            "limit_bytes": limit_bytes,
        }
        return read(self._requests.send("GET", f"{LOG}/ranges", asked).body, LogRanges)

    def hold(self, name: str, cursor: str, lapse_s: float, *, filters: Sequence[str] = ()) -> Hold:
        """Keep what comes after a cursor in the log, until it is released or nobody renews it for so long.

        Args:
            filters: what is to be read, for who may not read everything.
        """
        body = msgspec.json.encode(
            {"name": name, "cursor": cursor, "lapse_s": lapse_s, "filters": list(filters)}
        )
        return read(self._requests.send("POST", HOLDS, body=body, may_repeat=True).body, Hold)

    def renew(self, name: str) -> Hold:
        """Let a hold live on."""
        return read(self._requests.send("POST", f"{_path(name)}/renew", may_repeat=True).body, Hold)

    def commit(self, name: str, cursor: str) -> Hold:
        """Move a hold: what comes before the cursor was read, and may go."""
        body = msgspec.json.encode({"cursor": cursor})
        return read(self._requests.send("PUT", _path(name), body=body).body, Hold)

    def release(self, name: str) -> None:
        """Let go of what a hold kept."""
        self._requests.send("DELETE", _path(name))

    def holds(self) -> list[Hold]:
        """The holds that this user may see."""
        return read(self._requests.send("GET", HOLDS).body, _Holds).holds


def _path(name: str) -> str:
    return f"{HOLDS}/{quote(name, safe='')}"
