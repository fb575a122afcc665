"""Pending requests of an MQTT client, by packet identifier; AUTH has none and is kept separately.

A request whose caller was cancelled stays pending: its identifier and its place in the window are freed by
the server's last packet.
"""

import asyncio

from msgspec import Struct

from penstock.client.errors import ConnectionLost
from penstock.errors import QuotaExceeded
from penstock.wire.mqtt.packets import Auth, PubComp, PubRec, PubRel, Reply, SubAck, UnsubAck
from penstock.wire.mqtt.reasons import ProtocolViolation, ReasonCode

LAST_ID = 65_535
MAX_WINDOW = 60_000  # leaves identifiers for subscribing

Response = Reply | SubAck | UnsubAck


class Exchange(Struct):
    """One request: the type of the next packet, and the future of its outcome."""

    expects: type[Response]
    outcome: asyncio.Future[Response]
    received: PubRec | None = None


class Exchanges:
    """All pending requests; `window` limits publishes in flight to the server's Receive Maximum."""

    def __init__(self, receive_maximum: int | None) -> None:
        self.window = asyncio.Semaphore(min(receive_maximum or MAX_WINDOW, MAX_WINDOW))
        self._open: dict[int, Exchange] = {}
        self._auth: asyncio.Future[Auth] | None = None  # while one is expected
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._open) + (self._auth is not None)

    def take_id(self) -> int:
        """A free packet identifier."""
        for _ in range(LAST_ID):
            self._last_id = self._last_id % LAST_ID + 1
            if self._last_id not in self._open:
                return self._last_id
        raise QuotaExceeded("all packet identifiers are in use")

    def begin(self, packet_id: int, expects: type[Response]) -> asyncio.Future[Response]:
        """Expect a response; the future gets its last packet, or the PUBREC of a successful QoS 2 publish."""
        outcome: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._open[packet_id] = Exchange(expects, outcome)
        return outcome

    def begin_auth(self) -> asyncio.Future[Auth]:
        """Expect the server's next AUTH packet; one at a time."""
        self._auth = asyncio.get_running_loop().create_future()
        return self._auth

    def on_auth(self, packet: Auth) -> None:
        """Process an AUTH packet."""
        expected, self._auth = self._auth, None
        if expected is None:
            raise ProtocolViolation("unexpected AUTH")
        if not expected.done():
            expected.set_result(packet)

    def on_pubrec(self, pubrec: PubRec) -> PubRel | None:
        """Continue a QoS 2 exchange; returns the packet to send."""
        exchange = self._expecting(pubrec)
        if exchange is None:
            return PubRel(pubrec.packet_id, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
        if pubrec.reason >= 0x80:
            self.on_response(pubrec)
            return None
        exchange.expects, exchange.received = PubComp, pubrec
        return PubRel(pubrec.packet_id)

    def on_response(self, response: Response) -> None:
        """Complete an exchange; an unknown packet identifier is ignored."""
        exchange = self._expecting(response)
        if exchange is None:
            return
        del self._open[response.packet_id]
        if isinstance(response, Reply):
            self.window.release()
            if exchange.received is not None and response.reason < 0x80:
                response = exchange.received  # has the result; PUBCOMP only ends the exchange
        if not exchange.outcome.done():
            exchange.outcome.set_result(response)

    def fail(self, lost: ConnectionLost) -> None:
        """Fail all exchanges."""
        for exchange in self._open.values():
            if issubclass(exchange.expects, Reply):
                self.window.release()
            if not exchange.outcome.done():
                exchange.outcome.set_exception(lost)
        self._open.clear()
        if self._auth is not None and not self._auth.done():
            self._auth.set_exception(lost)
        self._auth = None

    def _expecting(self, response: Response) -> Exchange | None:
        exchange = self._open.get(response.packet_id)
        if exchange is not None and exchange.expects is not type(response):
            raise ProtocolViolation(f"{type(response).__name__} instead of {exchange.expects.__name__}")
        return exchange
