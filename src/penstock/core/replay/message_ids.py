"""Message ids and cursors as text.

Both derive from the message's position in the log: they are the same for every reader at any time, and an id
leads back to its position.
"""

from binascii import b2a_base64
from hashlib import blake2b
from re import compile as pattern
from struct import Struct as Layout

from penstock.common.cursor import Cursor, Position
from penstock.core.ports.log import Log
from penstock.runs import Run

_CURSOR_END = Layout(">BQ")
"""Layout of a cursor's bytes after the twelve that all positions of an epoch share."""
_CURSOR_START = 16
"""Characters of these twelve bytes."""
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_VARIANT = 1 << 63
"""Marks the second half of a UUID as one of RFC 9562."""
_LAST_GROUP = (1 << 48) - 1
"""The largest offset that the last group of a UUID holds alone."""
_ID_START = 19
"""Characters of an id that name log and epoch."""
_ID_END = pattern(r"[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def name_of_node(log_id: str) -> str:
    """Return the default name of a server: constant for a log."""
    return f"node-{log_id[:8]}"


class EpochIds:
    """Ids and cursors of the messages of one epoch of a log."""

    __slots__ = ("_cursor_start", "_epoch_byte", "_low_start", "id_start")

    def __init__(self, log_id: str, epoch: int) -> None:
        start = Cursor((Position(log_id, epoch, 0),)).encode()[:_CURSOR_START]
        self._cursor_start = start.encode()
        self._epoch_byte = epoch & 0xFF
        digest = blake2b(f"{log_id}/{epoch}".encode(), digest_size=8).hexdigest()
        self.id_start = f"{digest[:8]}-{digest[8:12]}-4{digest[13:]}-".encode()
        self._low_start = self.id_start + b"8000-"

    def cursor(self, offset: int) -> bytes:
        """The text of the cursor behind a message."""
        end = b2a_base64(_CURSOR_END.pack(self._epoch_byte, offset), newline=False)
        return self._cursor_start + end.translate(_URL_SAFE)

    def message_id(self, offset: int) -> bytes:
        """A UUID for a message that has no id of its own."""
        if offset <= _LAST_GROUP:
            return b"%b%012x" % (self._low_start, offset)
        return b"%b%04x-%012x" % (self.id_start, (_VARIANT | offset) >> 48, offset & _LAST_GROUP)

    def message_ids(self, offset: int, count: int) -> list[bytes]:
        """The same for messages that follow one another."""
        end = offset + count
        if end <= _LAST_GROUP:
            start = self._low_start
            return [b"%b%012x" % (start, each) for each in range(offset, end)]
        return [self.message_id(each) for each in range(offset, end)]


class Epochs:
    """Finds the epoch of an offset."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._first = 0
        self._last = -1
        self._epoch = log.epoch

    def of(self, offset: int) -> int:
        """The epoch of an offset; asked for neighbours, it need not look again."""
        if not self._first <= offset <= self._last:
            self._find(offset)
        return self._epoch

    def _find(self, offset: int) -> None:
        log, epoch = self._log, self._log.epoch
        last, before = max(offset, log.last_offset), None
        for earlier in reversed(log.epochs()[:-1]):
            before = log.end_of(earlier)
            if before is None or offset > before:
                break
            epoch, last, before = earlier, before, None
        self._epoch, self._last = epoch, last
        self._first = 0 if before is None else before + 1


class MessageIds:
    """Marks of all messages of a log, those of earlier epochs included."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._epochs = Epochs(log)
        self._known: dict[int, EpochIds] = {}
        self._by_id: dict[str, int] = {}  # epochs by the prefix of their ids; filled on first use
        before = log.end_of(log.epoch - 1)
        self._first = 0 if before is None else before + 1  # of this epoch
        self._now = self._of_epoch(log.epoch)

    def at(self, offset: int) -> EpochIds:
        """The marks of the epoch that an offset was given in."""
        return self._now if offset >= self._first else self._of_epoch(self._epochs.of(offset))

    def epoch_of(self, offset: int) -> int:
        """The epoch that an offset was given in."""
        return self._log.epoch if offset >= self._first else self._epochs.of(offset)

    def cursor(self, offset: int) -> bytes:
        """The text of the cursor behind a message."""
        return self.at(offset).cursor(offset)

    def ids_of(self, run: Run) -> list[bytes]:
        """The id of each message of a run: the one that its publisher gave it, or one of ours."""
        properties = run.properties
        if properties is not None and properties.message_id:
            return [properties.message_id.encode()] * run.count
        offset, count = run.offset, run.count
        if offset >= self._first:
            return self._now.message_ids(offset, count) if count > 1 else [self._now.message_id(offset)]
        return [self.at(each).message_id(each) for each in range(offset, offset + count)]

    def position_of(self, message_id: str) -> Position | None:
        """Return the position of a message by its generated id; None if the id is not of this log.

        The position may be behind the committed end of its epoch, as a cursor's may.
        """
        if not self._by_id:
            self._by_id = {self._of_epoch(epoch).id_start.decode(): epoch for epoch in self._log.epochs()}
        epoch = self._by_id.get(message_id[:_ID_START])
        end = message_id[_ID_START:]
        if epoch is None or not _ID_END.fullmatch(end):
            return None
        return Position(self._log.log_id, epoch, int(end.replace("-", ""), 16) & ~_VARIANT)

    def _of_epoch(self, epoch: int) -> EpochIds:
        marks = self._known.get(epoch)
        if marks is None:
            marks = self._known[epoch] = EpochIds(self._log.log_id, epoch)
        return marks
