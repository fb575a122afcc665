"""Messages as JSON events, encoded once for all subscribers.

Beside topic and data an event has its position: an id, its sequence in the topic, and a cursor that every
door accepts. All three are the same whenever and to whomever the message is sent.

A server has three encodings of them, WebSocket frames, compressed frames and blocks of an event stream, each
one object: core compares them by identity and encodes a message once for all subscribers of the same.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from msgspec import json

from penstock.core.ports.connection import Encoding, Frame
from penstock.core.ports.log import Log
from penstock.core.replay.message_ids import MessageIds
from penstock.runs import Run, Shape
from penstock.wire.json_values import json_value, text_value

TOPICS_REMEMBERED = 4_096
_TEXT = b',"encoding":"text"'


class EventTexts:
    """Writes events of one server."""

    def __init__(self, log: Log) -> None:
        self._marks = MessageIds(log)

    def of(self, run: Run) -> Iterator[bytes]:
        """The events of a run, in order."""
        start, own_id = _start_of(run.topic), run.properties and run.properties.message_id
        own_id_text = json.encode(own_id) if own_id else b""
        for index in range(run.count):
            offset = run.offset + index
            marks = self._marks.at(offset)
            payload = run.payload(index)
            value, is_text = json_value(payload), False
            if value is None:  # most payloads are JSON, and cost no second look
                value, encoding = text_value(payload)
                is_text = encoding is not None
            yield b'%b%b%b,"message_id":%b,"sequence":%d,"cursor":"%b"}' % (
                start,
                value,
                _TEXT if is_text else b"",
                own_id_text or b'"%b"' % marks.message_id(offset),
                run.sequence + index,
                marks.cursor(offset),
            )


@lru_cache(maxsize=TOPICS_REMEMBERED)
def _start_of(topic: str) -> bytes:
    """Beginning of all events of a topic."""
    return b'{"type":"event","topic":%b,"data":' % json.encode(topic)


class EventEncoding:
    """Events, one after another.

    Args:
        wrap: makes of an event's text what is sent.
    """

    __slots__ = ("_texts", "_wrap")

    qos = 0
    no_local = False
    is_retained = False
    has_cursor = True
    limit_bytes = 0

    def __init__(self, texts: EventTexts, wrap: Callable[[bytes], bytes]) -> None:
        self._texts = texts
        self._wrap = wrap

    def passes(self, shape: Shape, longest: int) -> bool:
        """Events are always encoded."""
        return False

    def encode(self, runs: Sequence[Run], now: float) -> bytes:
        """All messages, joined."""
        wrap, texts_of = self._wrap, self._texts.of
        return b"".join([wrap(text) for run in runs for text in texts_of(run)])

    def frames(self, runs: Sequence[Run], now: float, *, again: bool = False) -> list[Frame]:
        """Each message by itself; nothing here has a delivery number, so nothing is cut."""
        parts = [run.part(index, 1) for run in runs for index in range(run.count)]
        return [(self.encode((part,), now), b"", part) for part in parts]

    def oversize(self, runs: Sequence[Run], now: float) -> list[Run]:
        """No limit of the packet size."""
        return []

    def merge(self, *others: Encoding) -> Encoding:
        """One copy for overlapping filters, which all have the form of their connection."""
        return self

    def as_retained(self) -> Encoding:
        """A retained value is an event like any other."""
        return self
