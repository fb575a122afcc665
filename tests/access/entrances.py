"""The ways into the server, as an intruder meets them: each is one object that can come in, say and hear.

A new door, or a new way to an old one, is one more object in `ENTRANCES`; every attempt of the table is
then made through it as well. What an entrance cannot do at all is left out of its abilities.
"""

from base64 import b64encode
from collections.abc import Callable, Sequence
from enum import Flag, auto
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from penstock.client import ConnectionLost
from penstock.common.scram import METHOD, ScramClient
from penstock.wire.mqtt import (
    NO_PROPERTIES,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PacketProperties,
    PubAck,
    Publish,
    ReasonCode,
    Request,
    SubAck,
    Subscribe,
    Version,
    Will,
    encode_packet,
)
from tests.access.streams import open_stream
from tests.doors.mqtt.peers import FOR_EVER, Peer
from tests.support.servers import RunningServer

Heard = tuple[str, bytes]
"""A message that arrived: its topic and its payload."""
NULL = "\x7f"
"""Stands for the null character, which our own encoder refuses to write."""


class Ability(Flag):
    """What only some entrances can do."""

    WILLS = auto()
    SESSIONS = auto()
    SHARES = auto()
    ALIASES = auto()
    CLIENT_IDS = auto()
    SECOND_HELLO = auto()
    LONE_PASSWORD = auto()
    PROOFS = auto()
    """A name is proven in steps, and can be proven again."""
    EXACT_NAMES = auto()
    """Names that look the same are not the same; SCRAM wants them to be."""
    TOPICS = auto()
    """Topics are made and deleted."""
    FILTERS = auto()
    """Many topics are asked for at once."""
    VALUES = auto()
    """Whoever asks for a topic hears the value that it keeps."""
    NOTHING = 0


class Credentials(Struct, frozen=True):
    """What somebody says to be let in."""

    user: str | None = None
    password: bytes | None = None
    claimed: str | None = None
    """Whom one calls oneself where the name that counts is another."""


class Visitor(Protocol):
    """Somebody who was let in."""

    is_known: bool
    """Whether an earlier session goes on."""

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> bool:
        """Publish, and wait until the server is done with it; False if it says no."""

    async def subscribe(self, filter: str) -> bool:
        """Subscribe; False if the server says no."""

    async def heard(self) -> list[Heard]:
        """Everything that the server had to send until now, since the last call."""

    async def leave(self) -> None:
        """Go, as one should."""

    async def vanish(self) -> None:
        """Go without a word."""


@runtime_checkable
class Prying(Protocol):
    """Somebody who also looks where nothing was offered."""

    async def pry(self) -> list[Heard]:
        """Whatever can be had without having asked for a filter; of a topic's name, the name."""


class Entrance(Protocol):
    """A way in."""

    abilities: Ability

    async def enter(
        self,
        server: RunningServer,
        credentials: Credentials,
        client_id: str = "",
        *,
        will: Heard | None = None,
        stays: bool = False,
    ) -> Visitor | None:
        """Try to come in; None if one is turned away. `stays` asks for a session that outlives this visit."""

    async def close(self) -> None:
        """End every visit."""


class MqttVisitor:
    """A client of the MQTT door."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._early: list[Publish] = []  # came while we waited for an answer
        self.is_known = peer.connack.session_present

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False, alias: int = 0) -> bool:
        """Publish at QoS 1; with an alias and without a topic it goes where the alias leads."""
        properties = PacketProperties(topic_alias=alias) if alias else NO_PROPERTIES
        packet = Publish(topic, payload, 1, retain, False, self._peer.next_id(), properties)
        answer = await self._ask(packet, topic)
        return isinstance(answer, PubAck) and answer.reason < 0x80

    async def publish_all(self, topics: Sequence[str], payload: bytes, *, retain: bool = False) -> bool:
        """The same to many topics at once; False if the server says no to one of them."""
        packets = [Publish(topic, payload, 1, retain, False, self._peer.next_id()) for topic in topics]
        await self._peer.send(*packets)
        answers = [await self._answer() for _ in packets]
        return all(isinstance(answer, PubAck) and answer.reason < 0x80 for answer in answers)

    async def subscribe(self, filter: str) -> bool:
        answer = await self._ask(Subscribe(self._peer.next_id(), (Request(filter, 1),)), filter)
        return isinstance(answer, SubAck) and answer.reasons[0] < 0x80

    async def say_hello_again(self, credentials: Credentials) -> bool:
        """A second CONNECT on the same connection; False if that is its end."""
        hello = Connect("", self._peer.version, True, 0, credentials.user, credentials.password)
        return await self._ask(hello, "") is not None

    async def prove_again(self, credentials: Credentials) -> bool:
        """Go through the exchange once more; False if that is the end of the connection."""
        prover = prover_for(credentials)
        again = Auth(ReasonCode.RE_AUTHENTICATE, PacketProperties(**in_exchange(prover.begin())))
        await self._peer.send(again)
        return isinstance(await go_through(self._peer, prover), Auth)

    async def _ask(self, packet: Packet, text: str) -> Packet | None:
        await self._peer.send_bytes(encoded(packet, self._peer.version, text))
        return await self._answer()

    async def _answer(self) -> Packet | None:
        """The next answer, whatever messages come before it; None if the connection ends instead."""
        try:
            while isinstance(answer := await self._peer.take(), Publish):
                self._early.append(answer)
        except ConnectionLost:
            return None
        return None if isinstance(answer, Disconnect) else answer

    async def heard(self) -> list[Heard]:
        messages = await self._messages()
        await self._peer.send(*(PubAck(message.packet_id) for message in messages if message.qos))
        return [(message.topic, message.payload) for message in messages]

    async def hear_without_answering(self) -> list[Heard]:
        """The same without acknowledging it, so that it is sent again to who comes back."""
        return [(message.topic, message.payload) for message in await self._messages()]

    async def _messages(self) -> list[Publish]:
        early, self._early = self._early, []
        try:
            packets = await self._peer.fence()
        except ConnectionLost:
            return early
        return early + [packet for packet in packets if isinstance(packet, Publish)]

    async def leave(self) -> None:
        await self._peer.leave()

    async def vanish(self) -> None:
        await self._peer.cut()


class MqttEntrance:
    """The MQTT door, by one of its ports."""

    def __init__(self, version: Version, scheme: str = "mqtt") -> None:
        self.abilities = ~(Ability.PROOFS | Ability.TOPICS)
        if version is not Version.V5:
            self.abilities &= ~(Ability.ALIASES | Ability.LONE_PASSWORD)
        self._version = version
        self._scheme = scheme
        self._peers: list[Peer] = []

    async def enter(
        self,
        server: RunningServer,
        credentials: Credentials,
        client_id: str = "",
        *,
        will: Heard | None = None,
        stays: bool = False,
    ) -> MqttVisitor | None:
        user, password = credentials.user, credentials.password
        last_words = None if will is None else Will(*will)
        keeps = PacketProperties(session_expiry=FOR_EVER) if stays else NO_PROPERTIES
        hello = Connect(client_id, self._version, not stays, 0, user, password, last_words, keeps)
        peer = Peer(await open_stream(self._scheme, server.port_of(self._scheme), self._version))
        self._peers.append(peer)
        try:
            peer.connack = await self._greet(peer, hello, credentials)
        except ConnectionLost:
            return None
        if peer.connack.reason:
            assert await peer.last_words() == []
            return None
        return MqttVisitor(peer)

    async def _greet(self, peer: Peer, hello: Connect, credentials: Credentials) -> ConnAck:
        """Say who one is, and hear what the server thinks of it."""
        await peer.send_bytes(encoded(hello, self._version, credentials.user or "", hello.client_id))
        return await peer.receive(ConnAck)

    async def close(self) -> None:
        for peer in self._peers:
            await peer.stream.close()


class ScramEntrance(MqttEntrance):
    """The MQTT door, for who proves to know a password without saying it; guests come as anywhere."""

    def __init__(self) -> None:
        super().__init__(Version.V5)
        self.abilities = ~(Ability.EXACT_NAMES | Ability.LONE_PASSWORD | Ability.TOPICS)

    async def _greet(self, peer: Peer, hello: Connect, credentials: Credentials) -> ConnAck:
        if credentials.user is None:
            return await super()._greet(peer, hello, credentials)
        prover = prover_for(credentials)
        first = replace(hello.properties, **in_exchange(prover.begin()))
        await peer.send(replace(hello, user_name=credentials.claimed, password=None, properties=first))
        answer = await go_through(peer, prover)
        assert isinstance(answer, ConnAck)
        if not answer.reason:
            prover.check(answer.properties.authentication_data or b"")
        return answer


async def go_through(peer: Peer, prover: "ScramClient | Forger") -> Packet:
    """Answer what the server asks for, until it has no more questions."""
    answer = await peer.take()
    if not isinstance(answer, Auth):
        return answer
    proof = prover.prove(answer.properties.authentication_data or b"")
    await peer.send(Auth(ReasonCode.CONTINUE_AUTHENTICATION, PacketProperties(**in_exchange(proof))))
    return await peer.take()


def in_exchange(data: bytes) -> dict[str, Any]:
    """The properties that carry a step of the exchange."""
    return {"authentication_method": METHOD, "authentication_data": data}


def prover_for(credentials: Credentials) -> "ScramClient | Forger":
    """Who can prove it, or who pretends to where an honest client has nothing to begin with."""
    user = (credentials.user or "").replace(NULL, "\0")
    try:
        return ScramClient(user, (credentials.password or b"").decode())
    except ValueError:
        return Forger(user)


class Forger:
    """Goes through the exchange without a password."""

    def __init__(self, user: str) -> None:
        self._user = user

    def begin(self) -> bytes:
        return f"n,,n={self._user},r=forged".encode()

    def prove(self, data: bytes) -> bytes:
        nonce = data.partition(b",")[0]
        return b"c=biws,%s,p=%s" % (nonce, b64encode(bytes(32)))

    def check(self, data: bytes) -> None:
        """Believe any server."""


def encoded(packet: Packet, version: Version, *texts: str) -> bytes:
    """The bytes of a packet; if one of its texts has a mark for the null character, with that."""
    data = encode_packet(packet, version)
    return data.replace(NULL.encode(), b"\0") if NULL in "".join(texts) else data


ENTRANCES: dict[str, Callable[[], Entrance]] = {
    "mqtt-3.1.1-tcp": lambda: MqttEntrance(Version.V311),
    "mqtt-5.0-tcp": lambda: MqttEntrance(Version.V5),
    "mqtt-5.0-scram": ScramEntrance,
    "mqtt-5.0-tls": lambda: MqttEntrance(Version.V5, "mqtts"),
    "mqtt-3.1.1-websocket": lambda: MqttEntrance(Version.V311, "ws"),
    "mqtt-5.0-websocket-tls": lambda: MqttEntrance(Version.V5, "wss"),
}
"""Every way there is into the server."""
