"""Stages: rows sent in parts, then published together exactly once."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from penstock.client.http.log import encode_batches
from penstock.client.http.transport import Transport, decode_body
from penstock.client.messages import NewMessage, StageCommit, StagedPart
from penstock.wire.arrow import MEDIA_TYPE

if TYPE_CHECKING:
    import pyarrow as pa

STAGE = "/api/v1/stage"
JSON_LINES = "application/x-ndjson"
_PAGE = 1_000


class _Stage(msgspec.Struct):
    id: str
    lapses_at: str


class _StagePage(msgspec.Struct):
    stages: list[_Stage]
    next: str | None


class StageRequests:
    """Methods of `HttpClient` for stages: parallel writers, one atomic commit."""

    _transport: Transport

    def stage(
        self,
        id: str,
        *,
        rows: Iterable[NewMessage | Mapping[str, Any]] | None = None,
        batches: "Iterable[pa.RecordBatch] | None" = None,
        data: bytes | None = None,
        part: int = 0,
    ) -> StagedPart:
        """Send rows that wait for a commit; the same id and part again replaces them.

        Give one of:
            rows: messages.
            batches: record batches with the columns `topic` and `payload`, and other fields of a message.
            data: an Arrow stream of such batches.
        """
        if [rows, batches, data].count(None) != 2:
            raise ValueError("give one of rows, batches and data")
        if id == "commit":
            raise ValueError("`commit` is not a valid stage id: its path is that of the commit request")
        if rows is not None:
            body, content_type = msgspec.json.Encoder().encode_lines(list(rows)), JSON_LINES
        else:
            body = encode_batches(batches) if batches is not None else bytes(data or b"")
            content_type = MEDIA_TYPE
        response = self._transport.send(
            "POST", _path(id), {"part": part}, body=body, content_type=content_type, may_repeat=True
        )
        return decode_body(response.body, StagedPart)

    def staged(self, id: str) -> dict[str, Any]:
        """Content of a stage: its parts and their rows."""
        return self._transport.send("GET", _path(id)).value()

    def stages(self, prefix: str = "") -> Iterator[str]:
        """Ids of this user's uncommitted stages, with a given prefix."""
        return (stage.id for stage in self._listed(prefix))

    def stages_lapse_at(self, prefix: str = "") -> dict[str, str]:
        """Expiry of each of these stages by id; every new part extends it."""
        return {stage.id: stage.lapses_at for stage in self._listed(prefix)}

    def _listed(self, prefix: str) -> Iterator[_Stage]:
        after = None
        while True:
            query = {"prefix": prefix, "after": after, "limit": _PAGE}
            page = decode_body(self._transport.send("GET", STAGE, query).body, _StagePage)
            yield from page.stages
            after = page.next
            if after is None:
                return

    def commit_stages(
        self, key: str, ids: Sequence[str], *, rows: Sequence[int] | None = None, any_ids: bool = False
    ) -> StageCommit:
        """Publish all rows of these stages. Idempotent: the same key again returns the first result.

        Args:
            rows: expected number of rows of each stage; with a different number nothing is published.
            any_ids: return the first result also if the key was used for other stages, instead of an error.
        """
        content: dict[str, Any] = {"key": key, "ids": ids}
        if rows is not None:
            content["rows"] = rows
        if any_ids:
            content["any_ids"] = True
        body = msgspec.json.encode(content)
        return decode_body(
            self._transport.send("POST", f"{STAGE}/commit", body=body, may_repeat=True).body, StageCommit
        )

    def drop_stage(self, id: str) -> None:
        """Delete a stage without publishing it."""
        self._transport.send("DELETE", _path(id))


def _path(id: str) -> str:
    return f"{STAGE}/{quote(id, safe='')}"
