"""Of what was written, the events among the last bytes can be told."""

import json

import pytest

from penstock.core.cursor import Cursor
from penstock.core.ports import Position
from penstock.doors.web.socket.replies import PONG
from penstock.doors.web.socket.unsent import Unsent
from penstock.doors.websocket.deflating import deflated_frame
from penstock.doors.websocket.encoding import PING, control_frame, text_frame


def event(sequence: int, size: int = 10) -> bytes:
    cursor = Cursor((Position("00" * 8, 1, 100 + sequence),)).encode()
    said = {"type": "event", "topic": "a", "data": "x" * size, "sequence": sequence, "cursor": cursor}
    return json.dumps(said).encode()


def found(unsent: Unsent, lost_bytes: int) -> list[int]:
    events = unsent.events(lost_bytes)
    assert all((each.topic, each.count, each.offset) == ("a", 1, 100 + each.sequence) for each in events)
    return [each.sequence for each in events]


@pytest.mark.parametrize("frame", [text_frame, deflated_frame])
def test_events_are_found_from_the_first_byte_that_is_lost_on(frame: type[bytes]) -> None:
    frames = [frame(event(1)), PONG, frame(event(2, 1_000)), frame(event(3, 70_000)), frame(event(4))]
    unsent = Unsent()
    unsent.add(b"".join(frames[:2]))
    unsent.add(b"".join(frames[2:]))
    last, before = len(frames[4]), len(frames[3])
    assert found(unsent, 0) == []
    assert found(unsent, 1) == found(unsent, last) == [4]
    assert found(unsent, last + 1) == found(unsent, last + before) == [3, 4]
    assert found(unsent, sum(map(len, frames))) == [1, 2, 3, 4]


def test_what_is_no_event_is_overlooked() -> None:
    unsent = Unsent()
    data = PONG + control_frame(PING, b"") + text_frame(b'{"type":"info","message":"event"}')
    unsent.add(data)
    assert found(unsent, len(data)) == []


def test_what_has_left_is_forgotten() -> None:
    unsent = Unsent()
    first, second = text_frame(event(1)), text_frame(event(2))
    unsent.add(first)
    unsent.add(second)
    assert found(unsent, len(first + second)) == [1, 2]
    unsent.forget(len(second) + 1)
    assert found(unsent, len(first + second)) == [1, 2]
    unsent.forget(len(second))
    assert found(unsent, len(second)) == [2]
    assert unsent.size_bytes == len(second)
    unsent.forget(0)
    assert unsent.size_bytes == 0
    assert found(unsent, 1_000) == []
