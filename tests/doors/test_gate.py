"""A gate is open only while nothing keeps it shut, whoever opens and shuts it in which order."""

import asyncio

from penstock.doors.gate import Gate, Why


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
    gate = Gate(reading)
    gate.shut(Why.ANSWERS)
    gate.shut(Why.RATE)
    gate.shut(Why.RATE)
    gate.open(Why.RATE)
    assert not reading.is_on
    assert gate.is_shut_by(Why.ANSWERS)
    assert not gate.is_shut_by(Why.RATE)
    gate.open(Why.HELD)
    assert not reading.is_on
    gate.open(Why.ANSWERS)
    assert reading.is_on
    gate.open(Why.ANSWERS)
    assert reading.is_on


def test_a_wide_open_gate_has_no_reason_left() -> None:
    reading = Reading()
    gate = Gate(reading)
    for why in Why:
        gate.shut(why)
    gate.open_wide()
    assert reading.is_on
    assert not any(gate.is_shut_by(why) for why in Why)


def test_a_transport_that_is_closing_is_left_alone() -> None:
    reading = Reading()
    reading.has_ended = True
    gate = Gate(reading)
    gate.shut(Why.RATE)
    gate.open(Why.RATE)
    assert reading.is_on
