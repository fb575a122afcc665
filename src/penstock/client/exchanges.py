"""A client's requests that wait for their answers, by packet identifier; AUTH, which has none, by itself.

An exchange goes on when nobody waits for its outcome any more: its identifier is free again, and
its place in the window too, only when the server has said the last word.
"""

import asyncio

from msgspec import Struct

from penstock.client.errors import ConnectionLost
from penstock.errors import QuotaExceeded
from penstock.wire.mqtt.packets import Auth, PubComp, PubRec, PubRel, Reply, SubAck, UnsubAck
from penstock.wire.mqtt.reasons import ProtocolViolation, ReasonCode

LAST_ID = 65_535
MAX_WINDOW = 60_000  # some identifiers stay free for subscribing

Answer = Reply | SubAck | UnsubAck


class Exchange(Struct):
    """One request: which packet is expected next, and who waits for the outcome."""

    expects: type[Answer]
    outcome: asyncio.Future[Answer]
    received: PubRec | None = None


class Exchanges:
    """All requests on their way; `window` lets as many publishes in as the server takes at once."""

    def __init__(self, receive_maximum: int | None) -> None:
        self.window = asyncio.Semaphore(min(receive_maximum or MAX_WINDOW, MAX_WINDOW))
        self._open: dict[int, Exchange] = {}
        self._auth: asyncio.Future[Auth] | None = None  # while one is due
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._open) + (self._auth is not None)

    def take_id(self) -> int:
        """A packet identifier that no exchange uses."""
        for _ in range(LAST_ID):
            self._last_id = self._last_id % LAST_ID + 1
            if self._last_id not in self._open:
                return self._last_id
        raise QuotaExceeded("all packet identifiers are in use")

    def begin(self, packet_id: int, expects: type[Answer]) -> asyncio.Future[Answer]:
        """Expect an answer; the future is its last packet, or the PUBREC of one at QoS 2 that went well."""
        outcome: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._open[packet_id] = Exchange(expects, outcome)
        return outcome

    def begin_auth(self) -> asyncio.Future[Auth]:
        """Expect the server's next step of authentication; there is one at a time."""
        self._auth = asyncio.get_running_loop().create_future()
        return self._auth

    def on_auth(self, packet: Auth) -> None:
        """Take a step of authentication."""
        due, self._auth = self._auth, None
        if due is None:
            raise ProtocolViolation("AUTH that nobody asked for")
        if not due.done():
            due.set_result(packet)

    def on_pubrec(self, pubrec: PubRec) -> PubRel | None:
        """Go on with an exchange at QoS 2; the answer has to be sent."""
        exchange = self._expecting(pubrec)
        if exchange is None:
            return PubRel(pubrec.packet_id, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
        if pubrec.reason >= 0x80:
            self.on_answer(pubrec)
            return None
        exchange.expects, exchange.received = PubComp, pubrec
        return PubRel(pubrec.packet_id)

    def on_answer(self, answer: Answer) -> None:
        """End an exchange; an answer to nothing is ignored."""
        exchange = self._expecting(answer)
        if exchange is None:
            return
        del self._open[answer.packet_id]
        if isinstance(answer, Reply):
            self.window.release()
            if exchange.received is not None and answer.reason < 0x80:
                answer = exchange.received  # it says what became of the message, PUBCOMP only that it is over
        if not exchange.outcome.done():
            exchange.outcome.set_result(answer)

    def fail(self, lost: ConnectionLost) -> None:
        """End all exchanges: there will be no answers."""
        for exchange in self._open.values():
            if issubclass(exchange.expects, Reply):
                self.window.release()
            if not exchange.outcome.done():
                exchange.outcome.set_exception(lost)
        self._open.clear()
        if self._auth is not None and not self._auth.done():
            self._auth.set_exception(lost)
        self._auth = None

    def _expecting(self, answer: Answer) -> Exchange | None:
        exchange = self._open.get(answer.packet_id)
        if exchange is not None and exchange.expects is not type(answer):
            raise ProtocolViolation(f"{type(answer).__name__} where {exchange.expects.__name__} was due")
        return exchange
