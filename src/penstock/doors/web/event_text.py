"""Messages as the events that JSON clients get: one line of JSON each, the same for everyone.

Beside topic and data an event says where it stands: an id, its sequence within the topic, and a cursor that
every door understands. All three are the same whenever and to whomever the message is sent.
"""

from collections.abc import Iterator
from functools import lru_cache

from msgspec import json

from penstock.core.marks import LogMarks
from penstock.core.ports import Log
from penstock.model import Run
from penstock.wire.jsonvalue import value_of

TOPICS_REMEMBERED = 4_096


class EventTexts:
    """Writes events of one server."""

    def __init__(self, log: Log) -> None:
        self._marks = LogMarks(log)

    def of(self, run: Run) -> Iterator[bytes]:
        """The events of a run, in order."""
        start, own_id = _start_of(run.topic), run.properties and run.properties.message_id
        own_id_text = json.encode(own_id) if own_id else b""
        for index in range(run.count):
            offset = run.offset + index
            marks = self._marks.at(offset)
            yield b'%b%b,"message_id":%b,"sequence":%d,"cursor":"%b"}' % (
                start,
                value_of(run.payload(index)),
                own_id_text or b'"%b"' % marks.message_id(offset),
                run.sequence + index,
                marks.cursor(offset),
            )


@lru_cache(maxsize=TOPICS_REMEMBERED)
def _start_of(topic: str) -> bytes:
    """What all events of a topic begin with."""
    return b'{"type":"event","topic":%b,"data":' % json.encode(topic)
