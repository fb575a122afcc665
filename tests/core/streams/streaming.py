"""Senders and receivers at the streams of a stage, as a door would be for them."""

from uuid import UUID

from penstock.core.access.identity import Identity
from penstock.core.publishing.outcome import Receipt
from penstock.core.streams.send_request import Sending
from penstock.core.streams.streams import Streams
from penstock.core.streams.waiters import Handover, Wait
from penstock.errors import PenstockError
from penstock.runs import NEVER
from tests.support.broker import Stage

ANYONE = Identity(None, "")


class Send:
    """One send, and what became of it."""

    def __init__(self, streams: Streams, sending: Sending) -> None:
        self.outcomes: list[Receipt | PenstockError] = []
        self.wait: Wait | None = streams.send(sending, self.outcomes.append)

    @property
    def is_waiting(self) -> bool:
        return not self.outcomes

    @property
    def receipt(self) -> Receipt:
        (outcome,) = self.outcomes
        assert isinstance(outcome, Receipt), outcome
        return outcome

    @property
    def code(self) -> str:
        """Why it was refused."""
        (outcome,) = self.outcomes
        assert isinstance(outcome, PenstockError), outcome
        return outcome.code

    def cancel(self) -> None:
        assert self.wait is not None
        self.wait.cancel()


class Receive:
    """One receive, and what it got. While its client has gone it takes nothing."""

    def __init__(
        self, streams: Streams, topic: str, identity: Identity, wait_s: float, *, is_gone: bool
    ) -> None:
        self.is_gone = is_gone
        self.seems_here = False
        self.handovers: list[Handover] = []
        self.errors: list[PenstockError] = []
        self.wait: Wait | None = streams.receive(
            topic,
            identity,
            wait_s,
            self._take,
            self.errors.append,
            lambda: not self.is_gone or self.seems_here,
        )

    def _take(self, handover: Handover) -> bool:
        if not self.is_gone:
            self.handovers.append(handover)
        return not self.is_gone

    @property
    def is_waiting(self) -> bool:
        return not (self.handovers or self.errors)

    @property
    def payload(self) -> bytes:
        (handover,) = self.handovers
        assert not self.errors
        return handover.payload

    @property
    def code(self) -> str:
        """Why it got nothing."""
        (error,) = self.errors
        assert not self.handovers
        return error.code

    def cancel(self) -> None:
        assert self.wait is not None
        self.wait.cancel()


class Crowd:
    """Everyone who sends and receives on a stage."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._number = 0

    @property
    def streams(self) -> Streams:
        return self._stage.broker.streams

    def send(
        self,
        payload: bytes = b"x",
        topic: str = "s",
        *,
        size: int | None = None,
        wait: float = 0.0,
        ttl: float = NEVER,
        identity: Identity = ANYONE,
        message_id: str | None = None,
        known_as: str | None = None,
        is_stored: bool = False,
    ) -> Send:
        self._number += 1
        message_id = message_id or str(UUID(int=self._number))
        sending = Sending(topic, payload, message_id, identity, size, wait, ttl, is_stored, known_as=known_as)
        return Send(self.streams, sending)

    def receive(
        self, topic: str = "s", *, wait: float = 0.0, identity: Identity = ANYONE, is_gone: bool = False
    ) -> Receive:
        return Receive(self.streams, topic, identity, wait, is_gone=is_gone)

    def take_all(self, topic: str = "s") -> list[bytes]:
        """Everything that is there."""
        taken: list[bytes] = []
        while not (receive := self.receive(topic)).errors:
            taken.append(receive.payload)
        return taken
