"""A pause is open only while nothing keeps it shut, whoever opens and shuts it in which order."""

import asyncio

from penstock.net.read_pause import ALL_REASONS, BACKPRESSURE, RATE_LIMIT, UNREAD_RESPONSES, ReadPause


class Reading(asyncio.Transport):
    """Knows whether it would be read from."""

    def __init__(self) -> None:
        super().__init__()
        self.is_on = True
        self.has_ended = False

    def pause_reading(self) -> None:
        assert self.is_on, "a loop complains about this"
        self.is_on = False

    def resume_reading(self) -> None:
        assert not self.is_on, "a loop complains about this"
        self.is_on = True

    def is_closing(self) -> bool:
        return self.has_ended


def test_one_reason_does_not_undo_another() -> None:
    reading = Reading()
    pause = ReadPause(reading)
    pause.pause(UNREAD_RESPONSES)
    pause.pause(RATE_LIMIT)
    pause.pause(RATE_LIMIT)
    pause.resume(RATE_LIMIT)
    assert not reading.is_on
    assert pause.is_paused_by(UNREAD_RESPONSES)
    assert not pause.is_paused_by(RATE_LIMIT)
    pause.resume(BACKPRESSURE)
    assert not reading.is_on
    pause.resume(UNREAD_RESPONSES)
    assert reading.is_on
    pause.resume(UNREAD_RESPONSES)
    assert reading.is_on


def test_a_wide_open_gate_has_no_reason_left() -> None:
    reading = Reading()
    pause = ReadPause(reading)
    for reason in ALL_REASONS:
        pause.pause(reason)
    pause.resume_all()
    assert reading.is_on
    assert not any(pause.is_paused_by(reason) for reason in ALL_REASONS)


def test_a_transport_that_is_closing_is_left_alone() -> None:
    reading = Reading()
    reading.has_ended = True
    pause = ReadPause(reading)
    pause.pause(RATE_LIMIT)
    pause.resume(RATE_LIMIT)
    assert reading.is_on
