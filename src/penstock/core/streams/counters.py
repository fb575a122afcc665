"""Totals of all streams since start, as plain integers."""

from penstock.common.histogram import Histogram, bucket_of


class StreamCounters:
    """Totals since start, and how many wait."""

    __slots__ = (
        "given_back",
        "met_message",
        "met_receiver",
        "receive_timeouts",
        "receive_waits",
        "receivers_waiting",
        "send_timeouts",
        "send_waits",
        "senders_waiting",
        "sends",
    )

    def __init__(self) -> None:
        self.sends = 0  # that were accepted
        self.met_message = 0  # receives that found a message
        self.met_receiver = 0  # receives that were there first
        self.given_back = 0  # messages whose receiver had gone
        self.send_timeouts = 0
        self.receive_timeouts = 0
        self.send_waits = Histogram()
        self.receive_waits = Histogram()
        self.receivers_waiting = 0
        self.senders_waiting = 0

    def note_send(self, seconds: float) -> None:
        """A send was accepted after it had waited."""
        self.send_waits.add(bucket_of(seconds), seconds)

    def note_receive(self, seconds: float) -> None:
        """A receiver that had waited got its message."""
        self.met_receiver += 1
        self.receive_waits.add(bucket_of(seconds), seconds)

    def note_send_at_once(self) -> None:
        """A send was accepted that had not to wait."""
        self.send_waits.counts[0] += 1

    def note_receive_at_once(self) -> None:
        """A receiver found its message there."""
        self.met_message += 1
        self.receive_waits.counts[0] += 1
