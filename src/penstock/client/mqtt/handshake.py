"""Start of an MQTT connection: argument checks, CONNECT, SCRAM in AUTH packets, CONNACK.

With SCRAM (MQTT 5 section 4.12) client and server both prove that they know the password, without sending it.
"""

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from msgspec.structs import replace

from penstock.client.errors import ConnectionLost, ConnectionRefused, describe_reason
from penstock.client.mqtt.stream import LARGEST_PACKET_BYTES, PacketStream
from penstock.common.scram import METHOD, ScramClient
from penstock.errors import BadCredentials, InvalidTopic
from penstock.wire.mqtt.packets import Auth, ConnAck, Connect, Packet, Version
from penstock.wire.mqtt.properties import NO_PROPERTIES, PacketProperties
from penstock.wire.mqtt.reasons import MqttWireError, ReasonCode, ReturnCode

if TYPE_CHECKING:
    from penstock.client.mqtt.client import MqttClient

_RETURN_CODES = {
    ReturnCode.UNACCEPTABLE_PROTOCOL_VERSION: ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
    ReturnCode.IDENTIFIER_REJECTED: ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    ReturnCode.SERVER_UNAVAILABLE: ReasonCode.SERVER_UNAVAILABLE,
    ReturnCode.BAD_USER_NAME_OR_PASSWORD: ReasonCode.BAD_USER_NAME_OR_PASSWORD,
    ReturnCode.NOT_AUTHORIZED: ReasonCode.NOT_AUTHORIZED,
}


class PendingConnection:
    """Connection in progress: await it for a client, or enter it for one that disconnects at the end."""

    def __init__(self, open_client: Callable[[], Coroutine[Any, Any, "MqttClient"]]) -> None:
        self._open_client = open_client
        self._client: MqttClient | None = None

    def __await__(self) -> Generator[Any, None, "MqttClient"]:
        return self._open_client().__await__()

    async def __aenter__(self) -> "MqttClient":
        self._client = await self
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._client is not None
        await self._client.disconnect()


class Endpoint(NamedTuple):
    """Address and transport of a server."""

    host: str
    port: int
    timeout_s: float
    tls: ssl.SSLContext | None = None
    websocket_path: str | None = None

    async def connect(self, connect: Connect, login: "ScramLogin | None") -> tuple[PacketStream, ConnAck]:
        """Open a connection and perform the handshake.

        Raises:
            ConnectionRefused: no response in time, or the server refused the connection.
        """
        try:
            async with asyncio.timeout(self.timeout_s):
                stream = await self._open(connect)
                try:
                    return stream, await perform_handshake(stream, connect, login)
                except BaseException:
                    stream.abort()
                    raise
        except TimeoutError:
            text = f"no response from {self.host}:{self.port} within {self.timeout_s:g} s"
            raise ConnectionRefused(text) from None

    async def _open(self, connect: Connect) -> PacketStream:
        largest = connect.properties.maximum_packet_size or LARGEST_PACKET_BYTES
        return await PacketStream.open(
            self.host,
            self.port,
            connect.version,
            largest,
            tls=self.tls,
            websocket_path=self.websocket_path,
        )


class ScramLogin:
    """User and password of SCRAM, for any number of exchanges."""

    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._password = password

    @classmethod
    def make(cls, method: str, user: str | None, password: str | bytes | None) -> Self:
        """Check method, user and password.

        Raises:
            ValueError: SCRAM cannot use them.
        """
        if method.upper() != METHOD:
            raise ValueError(f"authentication method {method!r} is not supported; use {METHOD}")
        if not user or not password:
            raise ValueError(f"{METHOD} needs a user and a password")
        try:
            login = cls(user, password.decode() if isinstance(password, bytes) else password)
        except UnicodeDecodeError:  # its text would contain the password
            raise ValueError(f"{METHOD} needs a password in UTF-8") from None
        login.begin()
        return login

    def begin(self) -> "ScramExchange":
        """Start an exchange with a server."""
        return ScramExchange(ScramClient(self._user, self._password))


class ScramExchange:
    """One authentication; every step raises `BadCredentials` if the server cannot be trusted."""

    def __init__(self, scram: ScramClient) -> None:
        self._scram = scram

    def add_to(self, connect: Connect) -> Connect:
        """A CONNECT that starts the exchange."""
        data = self._scram.begin()
        properties = replace(connect.properties, authentication_method=METHOD, authentication_data=data)
        return replace(connect, properties=properties)

    def first(self) -> Auth:
        """The AUTH that starts the exchange on an open connection."""
        return _make_auth(ReasonCode.RE_AUTHENTICATE, self._scram.begin())

    async def respond(self, packet: Auth) -> Auth:
        """Respond to the server's challenge; computed in a thread, because it takes a while."""
        if packet.reason != ReasonCode.CONTINUE_AUTHENTICATION:
            raise BadCredentials("the server accepted the client without a proof")
        proof = await asyncio.to_thread(self._scram.prove, _auth_data(packet.properties))
        return _make_auth(ReasonCode.CONTINUE_AUTHENTICATION, proof)

    def check(self, packet: Auth | ConnAck) -> None:
        """Check the server's own proof, in its last packet."""
        if packet.reason != ReasonCode.SUCCESS:
            raise BadCredentials("the server sent one challenge too many")
        self._scram.check(_auth_data(packet.properties))


async def perform_handshake(stream: PacketStream, connect: Connect, login: ScramLogin | None) -> ConnAck:
    """Send CONNECT, authenticate if there is a login, and return a successful CONNACK.

    Raises:
        ConnectionRefused: the server refused the connection, or failed to prove the password.
    """
    if login is None:
        await stream.send(connect)
        return _check_accepted(await _receive(stream), connect.version)
    try:
        return await _authenticate(stream, connect, login.begin())
    except BadCredentials as error:
        raise ConnectionRefused(f"authentication failed: {error}") from None


def check_topic(topic: str, properties: PacketProperties) -> None:
    """Refuse a topic that is not valid in PUBLISH."""
    if not topic and properties.topic_alias is None:
        raise InvalidTopic("a topic must not be empty")
    if any(mark in topic for mark in "+#\0"):
        raise InvalidTopic("a topic must not contain +, # or U+0000")


def check_qos(qos: int) -> None:
    """Refuse a QoS other than 0, 1 and 2."""
    if qos not in (0, 1, 2):
        raise ValueError(f"QoS is 0, 1 or 2, not {qos}")


def check_version(version: Version, *given: PacketProperties) -> None:
    """Refuse properties in version 3.1.1."""
    if version is Version.V311 and any(properties != NO_PROPERTIES for properties in given):
        raise ValueError("properties need MQTT 5")


def check_login(
    method: str,
    user: str | None,
    password: str | bytes | None,
    version: Version,
    properties: PacketProperties,
) -> ScramLogin:
    """Refuse an authentication method that does not match the other arguments."""
    if version is Version.V311:
        raise ValueError("authentication methods need MQTT 5")
    if properties.authentication_method is not None:
        raise ValueError("the properties already contain an authentication method")
    return ScramLogin.make(method, user, password)


async def _authenticate(stream: PacketStream, connect: Connect, exchange: ScramExchange) -> ConnAck:
    await stream.send(exchange.add_to(connect))
    packet = await _receive(stream)
    if isinstance(packet, Auth):
        await stream.send(await exchange.respond(packet))
        packet = await _receive(stream)
    connack = _check_accepted(packet, connect.version)
    exchange.check(connack)
    return connack


async def _receive(stream: PacketStream) -> Packet:
    try:
        return await stream.receive()
    except ConnectionLost:
        raise ConnectionRefused("the server closed the connection without a response") from None
    except MqttWireError as error:
        raise ConnectionRefused(f"the server's response is not MQTT: {error}") from None


def _check_accepted(packet: Packet, version: Version) -> ConnAck:
    if not isinstance(packet, ConnAck):
        raise ConnectionRefused(f"the server responded with {type(packet).__name__}, not with ConnAck")
    reason = packet.reason
    if reason and version is Version.V311:
        known = reason in _RETURN_CODES
        reason = _RETURN_CODES[ReturnCode(reason)] if known else ReasonCode.UNSPECIFIED_ERROR
    if reason:
        raise ConnectionRefused(describe_reason(reason, packet.properties.reason_string), reason)
    return packet


def _make_auth(reason: ReasonCode, data: bytes) -> Auth:
    return Auth(reason, PacketProperties(authentication_method=METHOD, authentication_data=data))


def _auth_data(properties: PacketProperties) -> bytes:
    if properties.authentication_method != METHOD:  # MQTT-4.12.0-5
        raise BadCredentials(f"the server uses the method {properties.authentication_method!r}, not {METHOD}")
    return properties.authentication_data or b""
