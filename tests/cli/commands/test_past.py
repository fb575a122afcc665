"""Subscriptions from the past: deadlines and streams that are none."""

from collections.abc import Iterator
from itertools import repeat

import pytest

from penstock.cli.commands.past import _messages, _until
from penstock.client.http.events import Event
from penstock.errors import PenstockError

MESSAGE = Event("", b'{"topic": "a", "sequence": 1, "cursor": "x"}')


def test_time_ends_a_stream_that_never_rests() -> None:
    received = 0
    for _ in _until(repeat(MESSAGE), 0.1):
        received += 1
    assert received > 0


def test_error_while_reading_ends_the_stream() -> None:
    def broken() -> Iterator[Event]:
        yield MESSAGE
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid")

    events = _until(broken(), None)
    assert next(events) == MESSAGE
    with pytest.raises(PenstockError, match="not a stream of events"):
        next(events)


@pytest.mark.parametrize(
    "event", [Event("", b"{"), Event("", b"{}"), Event("gap", b"[]"), Event("end", b"1")]
)
def test_events_of_another_program_are_refused(event: Event) -> None:
    with pytest.raises(PenstockError, match="not a stream of events"):
        list(_messages(iter([event])))
