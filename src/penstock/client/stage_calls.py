"""Requests about stages: rows that are sent in parts and published all together, exactly once."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from penstock.client.answers import NewMessage, StageCommit, StagedPart, read
from penstock.client.log import encode_batches
from penstock.client.requests import Requests
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


class StageCalls:
    """How many writers put their rows into one topic space as if they were one."""

    _requests: Requests

    def stage(
        self,
        id: str,
        *,
        rows: Iterable[NewMessage | Mapping[str, Any]] | None = None,
        batches: "Iterable[pa.RecordBatch] | None" = None,
        data: bytes | None = None,
        part: int = 0,
    ) -> StagedPart:
        """Send rows that wait for a commit. The same id and part again takes the place of what was there.

        Args:
            rows: messages, or
            batches: record batches with the columns `topic`, `payload` and whatever else a message has, or
            data: an Arrow stream of such batches.
        """
        if [rows, batches, data].count(None) != 2:
            raise ValueError("give one of rows, batches and data")
        if id == "commit":
            raise ValueError("`commit` is no name for a stage: its path is where stages are committed")
        if rows is not None:
            body, content_type = msgspec.json.Encoder().encode_lines(list(rows)), JSON_LINES
        else:
            body = encode_batches(batches) if batches is not None else bytes(data or b"")
            content_type = MEDIA_TYPE
        answer = self._requests.send(
            "POST", _path(id), {"part": part}, body=body, content_type=content_type, may_repeat=True
        )
        return read(answer.body, StagedPart)

    def staged(self, id: str) -> dict[str, Any]:
        """What waits in a stage: its parts and their rows."""
        return self._requests.send("GET", _path(id)).value()

    def stages(self, prefix: str = "") -> Iterator[str]:
        """The names of this user's stages that wait for a commit, of those that begin with something."""
        return (stage.id for stage in self._listed(prefix))

    def stages_lapse_at(self, prefix: str = "") -> dict[str, str]:
        """When each of these stages lapses, by its name; that moves on with every part that comes."""
        return {stage.id: stage.lapses_at for stage in self._listed(prefix)}

    def _listed(self, prefix: str) -> Iterator[_Stage]:
        after = None
        while True:
            asked = {"prefix": prefix, "after": after, "limit": _PAGE}
            page = read(self._requests.send("GET", STAGE, asked).body, _StagePage)
            yield from page.stages
            after = page.next
            if after is None:
                return

    def commit_stages(
        self, key: str, ids: Sequence[str], *, rows: Sequence[int] | None = None, any_ids: bool = False
    ) -> StageCommit:
        """Publish everything in these stages, once: the same key again answers the same and does nothing.

        Args:
            rows: how many each stage has to have: if parts of one are gone, nothing is published.
            any_ids: so it does if the key was used for other stages, which is an error otherwise.
        """
        asked: dict[str, Any] = {"key": key, "ids": ids}
        if rows is not None:
            asked["rows"] = rows
        if any_ids:
            asked["any_ids"] = True
        body = msgspec.json.encode(asked)
        return read(
            self._requests.send("POST", f"{STAGE}/commit", body=body, may_repeat=True).body, StageCommit
        )

    def drop_stage(self, id: str) -> None:
        """Forget a stage; nothing of it is published."""
        self._requests.send("DELETE", _path(id))


def _path(id: str) -> str:
    return f"{STAGE}/{quote(id, safe='')}"
