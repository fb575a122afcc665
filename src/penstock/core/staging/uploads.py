"""Uploads: chunks of a part on their way into the state store, over several turns."""

from collections.abc import Callable

from msgspec import Struct

from penstock.core.durability.records import CHUNKS
from penstock.core.node import Node
from penstock.core.staging.commit import Numbered
from penstock.core.staging.stages import Part, Stages
from penstock.errors import Conflict, PenstockError, StorageUnavailable

STORED_A_TURN = 1024 * 1024
"""About how many bytes of a part are stored in one turn: everyone waits for the same commit."""

Staged = Callable[[Part | PenstockError], None]
"""Called when a part is safe, or with the reason why it is not."""


class Upload(Struct, eq=False):
    """A part that is being stored."""

    part: Part
    unstored: list[Numbered]
    """The next one is the last."""
    done: Staged
    is_outdated: bool = False
    """It was sent again, and the later one was faster."""


class Uploads:
    """Stores the chunks of parts, and reports completion or failure."""

    def __init__(self, node: Node, on_end: Callable[[Upload, PenstockError | None], None]) -> None:
        self._node = node
        self._on_end = on_end
        self._under_way: dict[str, list[Upload]] = {}  # by stage

    def __contains__(self, id: str) -> bool:
        return id in self._under_way

    def count_new(self, stages: Stages) -> int:
        """Number of stages that are about to be made."""
        return sum(stages.find(id) is None for id in self._under_way)

    def begin(self, part: Part, done: Staged) -> None:
        """Store a part; the end may come at once."""
        upload = Upload(part, part.chunks[::-1], done)
        self._under_way.setdefault(part.stage, []).append(upload)
        self._store(upload)

    def _store(self, upload: Upload, failure: Exception | None = None) -> None:
        """Store the next chunks of a part, unless all of them are."""
        part = upload.part
        if failure is not None:
            self._end(upload, as_known(failure))
        elif upload.is_outdated:
            self._end(upload, Conflict(f"part {part.number} of {part.stage} has come again, and that counts"))
        elif upload.unstored and self._node.log.is_durable:
            size = 0
            while upload.unstored and size < STORED_A_TURN:
                number, chunk = upload.unstored.pop()
                self._node.recorder.put(CHUNKS, str(number), chunk)
                size += len(chunk.data)
            self._node.recorder.when_stored(lambda failure: self._store(upload, failure))
        else:
            self._end(upload, None)

    def _end(self, upload: Upload, error: PenstockError | None) -> None:
        uploads = self._under_way[upload.part.stage]
        uploads.remove(upload)
        if not uploads:
            del self._under_way[upload.part.stage]
        self._on_end(upload, error)

    def outdate(self, part: Part) -> None:
        """A part is one of its stage now: those that began before it, and are slower, must not replace it."""
        for upload in self._under_way.get(part.stage, ()):
            if upload.part.number == part.number and upload.part.record < part.record:
                upload.is_outdated = True


def as_known(failure: Exception) -> PenstockError:
    """Return a failed commit as an error with a code."""
    return failure if isinstance(failure, PenstockError) else StorageUnavailable(str(failure))
