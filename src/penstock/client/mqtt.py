"""An MQTT client for asyncio, both versions, on Penstock's own codec.

`PacketStream` sends and receives packets and knows no rules. `MqttClient` stands on it and keeps
them: packet identifiers, acknowledgements, flow control, keep alive. It does not reconnect: when
the connection is lost, whoever waits for something gets `ConnectionLost`.
"""

import asyncio
import ssl
from typing import Self, cast

from penstock.client.authentication import Login
from penstock.client.checks import check_login, check_qos, check_topic, check_version
from penstock.client.connecting import Connecting, Destination
from penstock.client.errors import ConnectionLost, RequestRefused, describe
from penstock.client.exchanges import Answer, Exchanges
from penstock.client.messages import Messages
from penstock.client.stream import LARGEST_PACKET_BYTES, PacketStream
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

__all__ = ["Messages", "MqttClient", "PacketStream"]


class MqttClient:
    """One connection to an MQTT server. `MqttClient.connect` makes them."""

    def __init__(
        self,
        stream: PacketStream,
        connect: Connect,
        connack: ConnAck,
        messages_limit: int,
        login: Login | None = None,
    ) -> None:
        asked, offered = connect.properties, connack.properties
        self.connack = connack
        self.version = connect.version
        self.client_id = offered.assigned_client_id or connect.client_id
        self.messages = Messages(messages_limit, asked.topic_alias_maximum or 0, self._reply)
        self._exchanges = Exchanges(offered.receive_maximum)
        self._largest_bytes = offered.maximum_packet_size or LARGEST_PACKET_BYTES
        self._login = login
        self._proving = asyncio.Lock()
        self._stream = stream
        self._lost: ConnectionLost | None = None
        self._resume = asyncio.Event()
        self._heard_at = asyncio.get_running_loop().time()
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
        tls: ssl.SSLContext | None = None,
        websocket_path: str | None = None,
    ) -> Connecting:
        """Connect; use the result with `async with` or `await`.

        Args:
            authentication: "SCRAM-SHA-256" proves the password to the server instead of sending it, and
                has the server prove that it knows it.
            timeout: seconds until the server must have accepted.
            messages_limit: how many messages may wait to be taken before reading from the server
                pauses. It goes on past the limit only while a reply is awaited.
            tls: speak TLS, trusting whom this trusts: `ssl.create_default_context()`, or one of your own.
            websocket_path: speak in a WebSocket with this path; Penstock's is `/mqtt`.

        Raises:
            ConnectionRefused: nobody answered, the server said no, or it could not prove itself.
        """
        check_version(version, properties, will.properties if will else NO_PROPERTIES)
        login = None
        if authentication is not None:
            login = check_login(authentication, user, password, version, properties)
            user = password = None  # proven, not sent
        secret = password.encode() if isinstance(password, str) else password
        connect = Connect(client_id, version, clean_start, keep_alive, user, secret, will, properties)
        destination = Destination(host, port, timeout, tls, websocket_path)
        return Connecting(lambda: cls._open(destination, connect, login, messages_limit))

    @classmethod
    async def _open(
        cls, destination: Destination, connect: Connect, login: Login | None, messages_limit: int
    ) -> Self:
        stream, connack = await destination.reach(connect, login)
        return cls(stream, connect, connack, messages_limit, login)

    @property
    def session_present(self) -> bool:
        """Whether the server had a session of this client."""
        return self.connack.session_present

    @property
    def is_connected(self) -> bool:
        """Whether the connection stands, as far as is known."""
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
        """Publish, wait for the acknowledgement that the QoS promises, and return its reason code.

        Raises:
            RequestRefused: the server answered with a reason of 0x80 or above.
            InvalidTopic: nobody can publish to this topic; nothing was sent.
            TooLarge: the server takes no packets of this size; nothing was sent.
            ConnectionLost: no acknowledgement came; the message may have arrived or not.
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
            outcome = self._ask(packet, PubAck if qos == 1 else PubRec)
        except BaseException:
            self._exchanges.window.release()
            raise
        reply = cast(Reply, await outcome)
        if reply.reason >= 0x80:
            text = describe(reply.reason, reply.properties.reason_string)
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
        """Subscribe and return a reason code per filter: the QoS granted, or 0x80 and above for a no.

        The options are for all filters given as text; a `Request` brings its own.
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
        reply = await self._ask(Subscribe(self._take_id(), requests, properties), SubAck)
        return cast(SubAck, reply).reasons

    async def unsubscribe(
        self, *filters: str, properties: PacketProperties = NO_PROPERTIES
    ) -> tuple[int, ...]:
        """Unsubscribe and return a reason code per filter; 3.1.1 has none."""
        check_version(self.version, properties)
        reply = await self._ask(Unsubscribe(self._take_id(), filters, properties), UnsubAck)
        return cast(UnsubAck, reply).reasons

    async def reauthenticate(self) -> None:
        """Prove the password once more, and have the server do so, while everything else goes on.

        Raises:
            ConnectionLost: one side did not convince the other, which ends the connection. A caller who is
                cancelled ends it too, because both sides would be left in the middle of it.
            ValueError: the connection was made without `authentication`.
        """
        if self._login is None:
            raise ValueError("only a client that connected with authentication can do so again")
        async with self._proving:
            proof = self._login.begin()
            try:
                question = await self._ask_auth(proof.first())
                proof.check(await self._ask_auth(await proof.answer(question)))
            except BadCredentials as error:
                self._leave(f"authentication failed: {error}")
            except asyncio.CancelledError:
                self._leave("authentication was given up")
                raise
            self._check_connected()

    async def disconnect(
        self, reason: int = ReasonCode.SUCCESS, properties: PacketProperties = NO_PROPERTIES
    ) -> None:
        """Say goodbye and wait until the server has heard it; does nothing when the connection is over."""
        check_version(self.version, properties)
        if self.version is Version.V311 and reason:
            raise ValueError("reasons need MQTT 5")
        if self._lost is None:
            self._stream.write(Disconnect(reason, properties))
            self._end(ConnectionLost("disconnected"), is_wanted=True)
            await self._stop_tasks()
            try:
                # Closing before the server does could reset the connection and take the goodbye with it.
                await self._stream.wait_closed()
            except TimeoutError:
                self._stream.abort()
        await self._stop_tasks()
        await self._stream.close()

    async def abort(self) -> None:
        """Cut the connection without a word, as a crash would: the server publishes the will."""
        self._end(ConnectionLost("aborted"), is_wanted=True)
        self._stream.abort()
        await self._stop_tasks()

    def _take_id(self) -> int:
        self._check_connected()
        return self._exchanges.take_id()

    def _ask(
        self, packet: Publish | Subscribe | Unsubscribe, expects: type[Answer]
    ) -> asyncio.Future[Answer]:
        """Send what wants an answer."""
        data = self._encode(packet)
        outcome = self._exchanges.begin(packet.packet_id, expects)
        self._resume.set()
        self._stream.write_bytes(data)
        return outcome

    async def _ask_auth(self, packet: Auth) -> Auth:
        """Send a step of authentication and take the server's next one."""
        self._check_connected()
        data = self._encode(packet)
        answer = self._exchanges.begin_auth()
        self._resume.set()
        self._stream.write_bytes(data)
        return await answer

    def _leave(self, text: str) -> None:
        """End a connection to a server that is not trusted any more."""
        if self._lost is None:
            self._stream.write(Disconnect(ReasonCode.NOT_AUTHORIZED))  # MQTT-4.12.1-2
            self._end(ConnectionLost(text, ReasonCode.NOT_AUTHORIZED))
            self._stream.hang_up()

    def _encode(self, packet: Packet) -> bytes:
        data = encode_packet(packet, self.version)
        if len(data) > self._largest_bytes:  # MQTT-3.2.2-15
            raise TooLarge(f"{len(data)} bytes, the server takes at most {self._largest_bytes}")
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
                self._heard_at = clock()
                self._on_packet(packet)
        except ConnectionLost as lost:
            self._end(lost)
        except MqttWireError as error:
            if self.version is Version.V5:
                self._stream.write(Disconnect(error.reason))
            self._end(ConnectionLost(f"the server broke the protocol: {error}", error.reason))
        self._stream.hang_up()

    def _on_packet(self, packet: Packet) -> None:
        match packet:
            case Publish():
                self.messages.accept(packet)
            case PubRec():
                self._reply(self._exchanges.on_pubrec(packet))
            case PubAck() | PubComp() | SubAck() | UnsubAck():
                self._exchanges.on_answer(packet)
            case PubRel():
                self.messages.release(packet)
            case PingResp():
                pass  # that something was heard is noted already
            case Auth():
                self._exchanges.on_auth(packet)
            case Disconnect():
                text = describe(packet.reason, packet.properties.reason_string)
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
                self._heard_at = clock()  # it is us who do not listen
            if clock() - self._heard_at > 1.5 * keep_alive:
                self._end(ConnectionLost(f"nothing heard for {1.5 * keep_alive:g} s"))
                self._stream.abort()
                return
            self._stream.write(PingReq())

    def _check_connected(self) -> None:
        if self._lost is not None:
            raise self._lost.with_traceback(None)

    def _end(self, lost: ConnectionLost, is_wanted: bool = False) -> None:
        """Tell everyone who waits; only the first end counts."""
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
