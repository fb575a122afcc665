"""MQTT client for asyncio, versions 3.1.1 and 5.0, on Penstock's own codec.

Implements the protocol rules on top of `PacketStream`: packet identifiers, acknowledgements, flow control,
keep alive. It does not reconnect: after a lost connection all pending calls get `ConnectionLost`.
"""

import asyncio
import ssl
from typing import Self, cast

from penstock.client.errors import ConnectionLost, RequestRefused, describe_reason
from penstock.client.mqtt.exchanges import Exchanges, Response
from penstock.client.mqtt.handshake import (
    Endpoint,
    PendingConnection,
    ScramLogin,
    check_login,
    check_qos,
    check_topic,
    check_version,
)
from penstock.client.mqtt.inbox import Messages
from penstock.client.mqtt.stream import LARGEST_PACKET_BYTES, PacketStream
from penstock.client.tls import TlsOption, make_ssl_context
from penstock.errors import BadCredentials, TooLarge
from penstock.wire.mqtt.encode import encode_packet
from penstock.wire.mqtt.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Reply,
    Request,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
)
from penstock.wire.mqtt.properties import NO_PROPERTIES, PacketProperties
from penstock.wire.mqtt.reasons import MqttWireError, ProtocolViolation, ReasonCode


class MqttClient:
    """One connection to an MQTT server; created by `MqttClient.connect`."""

    def __init__(
        self,
        stream: PacketStream,
        connect: Connect,
        connack: ConnAck,
        messages_limit: int,
        login: ScramLogin | None = None,
    ) -> None:
        asked, offered = connect.properties, connack.properties
        self.connack = connack
        self.version = connect.version
        self.client_id = offered.assigned_client_id or connect.client_id
        self.messages = Messages(messages_limit, asked.topic_alias_maximum or 0, self._reply)
        self._exchanges = Exchanges(offered.receive_maximum)
        self._largest_bytes = offered.maximum_packet_size or LARGEST_PACKET_BYTES
        self._login = login
        self._authenticating = asyncio.Lock()
        self._stream = stream
        self._lost: ConnectionLost | None = None
        self._resume = asyncio.Event()
        self._received_at = asyncio.get_running_loop().time()
        granted = offered.server_keep_alive
        keep_alive = connect.keep_alive if granted is None else granted
        self._tasks = [asyncio.create_task(self._read())]
        if keep_alive:
            self._tasks.append(asyncio.create_task(self._ping(keep_alive)))

    @classmethod
    def connect(
        cls,
        host: str = "127.0.0.1",
        port: int = 1883,
        *,
        client_id: str = "",
        version: Version = Version.V5,
        clean_start: bool = True,
        keep_alive: int = 60,
        user: str | None = None,
        password: str | bytes | None = None,
        authentication: str | None = None,
        will: Will | None = None,
        properties: PacketProperties = NO_PROPERTIES,
        timeout: float = 10.0,
        messages_limit: int = 1_000,
        tls: ssl.SSLContext | TlsOption = None,
        websocket_path: str | None = None,
    ) -> PendingConnection:
        """Connect; use the result with `async with` or `await`.

        Args:
            authentication: "SCRAM-SHA-256" proves the password instead of sending it, in both directions.
            timeout: limit in seconds for the server to accept the connection.
            messages_limit: limit of waiting messages before reading pauses; while a reply is pending,
                reading continues beyond it.
            tls: True, a file with trusted authorities, a `Tls` or an `ssl.SSLContext`; default: no TLS.
            websocket_path: connect through a WebSocket at this path; Penstock's is `/mqtt`.

        Raises:
            ConnectionRefused: no connection, or the server refused it or failed to prove the password.
        """
        check_version(version, properties, will.properties if will else NO_PROPERTIES)
        login = None
        if authentication is not None:
            login = check_login(authentication, user, password, version, properties)
            user = password = None  # not sent in CONNECT
        secret = password.encode() if isinstance(password, str) else password
        connect = Connect(client_id, version, clean_start, keep_alive, user, secret, will, properties)
        endpoint = Endpoint(host, port, timeout, make_ssl_context(tls), websocket_path)
        return PendingConnection(lambda: cls._open(endpoint, connect, login, messages_limit))

    @classmethod
    async def _open(
        cls, endpoint: Endpoint, connect: Connect, login: ScramLogin | None, messages_limit: int
    ) -> Self:
        stream, connack = await endpoint.connect(connect, login)
        return cls(stream, connect, connack, messages_limit, login)

    @property
    def session_present(self) -> bool:
        """Return whether the server resumed a session of this client."""
        return self.connack.session_present

    @property
    def is_connected(self) -> bool:
        """Return whether the connection is up, as far as is known."""
        return self._lost is None

    async def publish(
        self,
        topic: str,
        payload: bytes | str = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        properties: PacketProperties = NO_PROPERTIES,
    ) -> int:
        """Publish, wait for the acknowledgement of the QoS, and return its reason code.

        Raises:
            RequestRefused: the server responded with a reason of 0x80 or above.
            InvalidTopic: not a valid topic to publish to; nothing was sent.
            TooLarge: the packet exceeds the server's limit; nothing was sent.
            ConnectionLost: no acknowledgement; the message may have been received.
        """
        check_topic(topic, properties)
        check_qos(qos)
        check_version(self.version, properties)
        data = payload.encode() if isinstance(payload, str) else payload
        if not qos:
            self._check_connected()
            self._stream.write_bytes(self._encode(Publish(topic, data, 0, retain, properties=properties)))
            await self._stream.drain()
            self._check_connected()
            return ReasonCode.SUCCESS
        await self._exchanges.window.acquire()
        try:
            packet = Publish(topic, data, qos, retain, False, self._take_id(), properties)
            outcome = self._request(packet, PubAck if qos == 1 else PubRec)
        except BaseException:
            self._exchanges.window.release()
            raise
        reply = cast(Reply, await outcome)
        if reply.reason >= 0x80:
            text = describe_reason(reply.reason, reply.properties.reason_string)
            raise RequestRefused(f"the server refused {topic!r}: {text}", reply.reason)
        return reply.reason

    async def subscribe(
        self,
        *filters: str | Request,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        properties: PacketProperties = NO_PROPERTIES,
    ) -> tuple[int, ...]:
        """Subscribe and return a reason code per filter: the QoS granted, or 0x80 and above for a refusal.

        The options apply to filters given as text; a `Request` has its own.
        """
        requests = tuple(
            Request(each, qos, no_local, retain_as_published, retain_handling)
            if isinstance(each, str)
            else each
            for each in filters
        )
        for request in requests:
            check_qos(request.qos)
            if self.version is Version.V311 and request != Request(request.filter, request.qos):
                raise ValueError("subscription options other than QoS need MQTT 5")
        check_version(self.version, properties)
        reply = await self._request(Subscribe(self._take_id(), requests, properties), SubAck)
        return cast(SubAck, reply).reasons

    async def unsubscribe(
        self, *filters: str, properties: PacketProperties = NO_PROPERTIES
    ) -> tuple[int, ...]:
        """Unsubscribe and return a reason code per filter; 3.1.1 has none."""
        check_version(self.version, properties)
        reply = await self._request(Unsubscribe(self._take_id(), filters, properties), UnsubAck)
        return cast(UnsubAck, reply).reasons

    async def reauthenticate(self) -> None:
        """Repeat the SCRAM authentication in both directions; other calls continue meanwhile.

        Raises:
            ConnectionLost: it failed, which ends the connection. Cancelling the call ends the connection too,
                because the exchange cannot be abandoned halfway.
            ValueError: the connection was made without `authentication`.
        """
        if self._login is None:
            raise ValueError("the client has connected without `authentication`")
        async with self._authenticating:
            exchange = self._login.begin()
            try:
                challenge = await self._send_auth(exchange.first())
                exchange.check(await self._send_auth(await exchange.respond(challenge)))
            except BadCredentials as error:
                self._end_untrusted(f"authentication failed: {error}")
            except asyncio.CancelledError:
                self._end_untrusted("authentication was cancelled")
                raise
            self._check_connected()

    async def disconnect(
        self, reason: int = ReasonCode.SUCCESS, properties: PacketProperties = NO_PROPERTIES
    ) -> None:
        """Send DISCONNECT and wait until the server closes the connection. Idempotent."""
        check_version(self.version, properties)
        if self.version is Version.V311 and reason:
            raise ValueError("reasons need MQTT 5")
        if self._lost is None:
            self._stream.write(Disconnect(reason, properties))
            self._end(ConnectionLost("disconnected"), is_wanted=True)
            await self._stop_tasks()
            try:
                # Closing first could reset the connection before the server has read the DISCONNECT.
                await self._stream.wait_closed()
            except TimeoutError:
                self._stream.abort()
        await self._stop_tasks()
        await self._stream.close()

    async def abort(self) -> None:
        """Abort the connection without DISCONNECT, as a crash would: the server publishes the will."""
        self._end(ConnectionLost("aborted"), is_wanted=True)
        self._stream.abort()
        await self._stop_tasks()

    def _take_id(self) -> int:
        self._check_connected()
        return self._exchanges.take_id()

    def _request(
        self, packet: Publish | Subscribe | Unsubscribe, expects: type[Response]
    ) -> asyncio.Future[Response]:
        """Send a packet that expects a response."""
        data = self._encode(packet)
        outcome = self._exchanges.begin(packet.packet_id, expects)
        self._resume.set()
        self._stream.write_bytes(data)
        return outcome

    async def _send_auth(self, packet: Auth) -> Auth:
        """Send an AUTH packet and return the server's next one."""
        self._check_connected()
        data = self._encode(packet)
        response = self._exchanges.begin_auth()
        self._resume.set()
        self._stream.write_bytes(data)
        return await response

    def _end_untrusted(self, text: str) -> None:
        """End the connection to a server that failed to authenticate."""
        if self._lost is None:
            self._stream.write(Disconnect(ReasonCode.NOT_AUTHORIZED))  # MQTT-4.12.1-2
            self._end(ConnectionLost(text, ReasonCode.NOT_AUTHORIZED))
            self._stream.hang_up()

    def _encode(self, packet: Packet) -> bytes:
        data = encode_packet(packet, self.version)
        if len(data) > self._largest_bytes:  # MQTT-3.2.2-15
            raise TooLarge(
                f"a packet of {len(data)} bytes exceeds the server's limit of {self._largest_bytes}"
            )
        return data

    def _reply(self, packet: Packet | None) -> None:
        self._resume.set()
        if packet is not None and self._lost is None:
            self._stream.write(packet)

    async def _read(self) -> None:
        clock = asyncio.get_running_loop().time
        try:
            while True:
                if self.messages.is_full:
                    await self._wait_for_room()
                packet = await self._stream.receive()
                self._received_at = clock()
                self._on_packet(packet)
        except ConnectionLost as lost:
            self._end(lost)
        except MqttWireError as error:
            if self.version is Version.V5:
                self._stream.write(Disconnect(error.reason))
            self._end(ConnectionLost(f"protocol error of the server: {error}", error.reason))
        self._stream.hang_up()

    def _on_packet(self, packet: Packet) -> None:
        match packet:
            case Publish():
                self.messages.accept(packet)
            case PubRec():
                self._reply(self._exchanges.on_pubrec(packet))
            case PubAck() | PubComp() | SubAck() | UnsubAck():
                self._exchanges.on_response(packet)
            case PubRel():
                self.messages.release(packet)
            case PingResp():
                pass  # the time of receipt is recorded already
            case Auth():
                self._exchanges.on_auth(packet)
            case Disconnect():
                text = describe_reason(packet.reason, packet.properties.reason_string)
                raise ConnectionLost(f"the server disconnected: {text}", packet.reason)
            case _:
                raise ProtocolViolation(f"{type(packet).__name__} from a server")

    async def _wait_for_room(self) -> None:
        while self.messages.is_full and not self._exchanges:
            self._resume.clear()
            await self._resume.wait()

    async def _ping(self, keep_alive: int) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(keep_alive / 2)
            if self.messages.is_full:
                self._received_at = clock()  # reading is paused on this side
            if clock() - self._received_at > 1.5 * keep_alive:
                self._end(ConnectionLost(f"nothing received for {1.5 * keep_alive:g} s"))
                self._stream.abort()
                return
            self._stream.write(PingReq())

    def _check_connected(self) -> None:
        if self._lost is not None:
            raise self._lost.with_traceback(None)

    def _end(self, lost: ConnectionLost, is_wanted: bool = False) -> None:
        """End all pending calls with an error; only the first call has an effect."""
        if self._lost is not None:
            return
        self._lost = lost
        self.messages.end(None if is_wanted else lost)
        self._exchanges.fail(lost)
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()

    async def _stop_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
