"""Messages as the events that JSON clients get: one line of JSON each, the same for everyone.

Beside topic and data an event says where it stands: an id, its sequence within the topic, and a cursor that
every door understands. All three are the same whenever and to whomever the message is sent.
"""

from binascii import b2a_base64
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from struct import Struct as Layout

from msgspec import json

from penstock.core.cursor import Cursor
from penstock.core.ports import Log, Position
from penstock.doors.web.shapes import Epochs
from penstock.model import Run
from penstock.wire.jsonvalue import value_of

TOPICS_REMEMBERED = 4_096
_CURSOR_END = Layout(">BQ")
"""What of a cursor's bytes follows the twelve that all positions of an epoch begin with."""
_CURSOR_START = 16
"""How many characters those twelve are."""
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_VARIANT = 1 << 63
"""Marks the second half of a UUID as one of RFC 9562."""


class Marks:
    """Ids and cursors of the messages of one epoch of a log."""

    __slots__ = ("_cursor_start", "_epoch_byte", "_id_start")

    def __init__(self, log_id: str, epoch: int) -> None:
        start = Cursor((Position(log_id, epoch, 0),)).encode()[:_CURSOR_START]
        self._cursor_start = start.encode()
        self._epoch_byte = epoch & 0xFF
        digest = blake2b(f"{log_id}/{epoch}".encode(), digest_size=8).hexdigest()
        self._id_start = f"{digest[:8]}-{digest[8:12]}-4{digest[13:]}-".encode()

    def cursor(self, offset: int) -> bytes:
        """The text of the cursor behind a message."""
        end = b2a_base64(_CURSOR_END.pack(self._epoch_byte, offset), newline=False)
        return self._cursor_start + end.translate(_URL_SAFE)

    def message_id(self, offset: int) -> bytes:
        """A UUID for a message that has no id of its own."""
        low = b"%016x" % (_VARIANT | offset)
        return self._id_start + low[:4] + b"-" + low[4:]


class EventTexts:
    """Writes events of one server."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._epochs = Epochs(log)
        self._marks: dict[int, Marks] = {}
        before = log.end_of(log.epoch - 1)
        self._first = 0 if before is None else before + 1  # of this epoch
        self._now = self._marks_of(log.epoch)

    def of(self, run: Run) -> Iterator[bytes]:
        """The events of a run, in order."""
        start, own_id = _start_of(run.topic), run.properties and run.properties.message_id
        own_id_text = json.encode(own_id) if own_id else b""
        for index in range(run.count):
            offset = run.offset + index
            marks = self._now if offset >= self._first else self._marks_of(self._epochs.of(offset))
            yield b'%b%b,"message_id":%b,"sequence":%d,"cursor":"%b"}' % (
                start,
                value_of(run.payload(index)),
                own_id_text or b'"%b"' % marks.message_id(offset),
                run.sequence + index,
                marks.cursor(offset),
            )

    def _marks_of(self, epoch: int) -> Marks:
        marks = self._marks.get(epoch)
        if marks is None:
            marks = self._marks[epoch] = Marks(self._log.log_id, epoch)
        return marks


@lru_cache(maxsize=TOPICS_REMEMBERED)
def _start_of(topic: str) -> bytes:
    """What all events of a topic begin with."""
    return b'{"type":"event","topic":%b,"data":' % json.encode(topic)
