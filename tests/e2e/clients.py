"""Foreign MQTT clients behind one small face, so that the same stories can be told with each of them."""

import asyncio
import contextlib
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import aiomqtt
import gmqtt  # type: ignore[import-untyped]
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from penstock.client import Version

HOST = "127.0.0.1"
TIMEOUT_S = 20.0
KEPT_S = 3600


class Message(NamedTuple):
    """What an application sees of a message."""

    topic: str
    payload: bytes
    qos: int
    retain: bool


class Options(NamedTuple):
    """How a client comes: with which will, and whether its session is to be kept."""

    version: Version
    client_id: str
    is_kept: bool = False
    will: Message | None = None


class Client(ABC):
    """One client of one library."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self.is_gone = False

    async def leave(self) -> None:
        """Say goodbye."""
        self.is_gone = True
        await self.disconnect()

    async def drop(self) -> None:
        """End the connection without a goodbye."""
        self.is_gone = True
        await self.cut()

    async def receive(self, count: int = 1) -> list[Message]:
        """The next messages, in the order they came."""
        async with asyncio.timeout(TIMEOUT_S):
            return [await self.messages.get() for _ in range(count)]

    @abstractmethod
    async def connect(self, port: int) -> None: ...

    @abstractmethod
    async def subscribe(self, filter: str, qos: int = 0) -> None: ...

    @abstractmethod
    async def publish(self, topic: str, payload: bytes, qos: int = 0, *, retain: bool = False) -> None:
        """Publish, and wait for the acknowledgement where there is one."""

    @abstractmethod
    async def disconnect(self) -> None: ...

    @abstractmethod
    async def cut(self) -> None: ...


def wishes(options: Options) -> Any:
    """The properties of paho's CONNECT."""
    properties: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = KEPT_S if options.is_kept else 0
    return properties


class PahoClient(Client):
    """paho-mqtt, with its network loop in a thread."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._is_new = options.version is Version.V5
        self._connected, self._subscribed, self._gone = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._client: Any = paho.Client(
            CallbackAPIVersion.VERSION2,
            options.client_id,
            clean_session=None if self._is_new else not options.is_kept,
            protocol=paho.MQTTv5 if self._is_new else paho.MQTTv311,
            reconnect_on_failure=False,
        )
        if options.will is not None:
            self._client.will_set(*options.will)
        self._client.max_queued_messages_set(0)
        self._loop = asyncio.get_running_loop()
        self._client.on_message = self._on_message
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = self._teller(self._subscribed)
        self._client.on_disconnect = self._teller(self._gone)

    def _teller(self, event: asyncio.Event) -> Callable[..., None]:
        def tell(*_: Any) -> None:
            self._loop.call_soon_threadsafe(event.set)

        return tell

    def _on_connect(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        assert not reason.is_failure, reason
        self._loop.call_soon_threadsafe(self._connected.set)

    def _on_message(self, client: Any, data: Any, message: Any) -> None:
        got = Message(message.topic, message.payload, message.qos, message.retain)
        self._loop.call_soon_threadsafe(self.messages.put_nowait, got)

    async def connect(self, port: int) -> None:
        more: dict[str, Any] = {}
        if self._is_new:
            more = {"clean_start": not self.options.is_kept, "properties": wishes(self.options)}
        await asyncio.to_thread(self._client.connect, HOST, port, 60, **more)
        self._client.loop_start()
        async with asyncio.timeout(TIMEOUT_S):
            await self._connected.wait()

    async def subscribe(self, filter: str, qos: int = 0) -> None:
        self._subscribed.clear()
        if self._is_new:
            self._client.subscribe(filter, options=SubscribeOptions(qos=qos))
        else:
            self._client.subscribe(filter, qos)
        async with asyncio.timeout(TIMEOUT_S):
            await self._subscribed.wait()

    async def publish(self, topic: str, payload: bytes, qos: int = 0, *, retain: bool = False) -> None:
        info = self._client.publish(topic, payload, qos, retain)
        await asyncio.to_thread(info.wait_for_publish, TIMEOUT_S)
        assert info.is_published()

    async def disconnect(self) -> None:
        self._client.disconnect()
        await self._ended()

    async def cut(self) -> None:
        self._client.socket().shutdown(socket.SHUT_RDWR)
        await self._ended()

    async def _ended(self) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await self._gone.wait()
        await asyncio.to_thread(self._client.loop_stop)


class AiomqttClient(Client):
    """aiomqtt, which runs paho on the loop."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        is_new = options.version is Version.V5
        more: dict[str, Any] = {"clean_session": not options.is_kept}
        if is_new:
            more = {"clean_start": not options.is_kept, "properties": wishes(options)}
        self._more = more | {
            "identifier": options.client_id,
            "protocol": aiomqtt.ProtocolVersion.V5 if is_new else aiomqtt.ProtocolVersion.V311,
            "will": aiomqtt.Will(*options.will) if options.will else None,
            "max_concurrent_outgoing_calls": None,
            "timeout": TIMEOUT_S,
        }

    async def connect(self, port: int) -> None:
        self._client = aiomqtt.Client(HOST, port, **self._more)
        await self._client.__aenter__()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        with contextlib.suppress(aiomqtt.MqttError):
            async for message in self._client.messages:
                payload = message.payload
                assert isinstance(payload, bytes)
                self.messages.put_nowait(
                    Message(message.topic.value, payload, int(message.qos), message.retain)
                )

    async def subscribe(self, filter: str, qos: int = 0) -> None:
        if self.options.version is Version.V5:
            await self._client.subscribe(filter, options=SubscribeOptions(qos=qos))
        else:
            await self._client.subscribe(filter, qos)

    async def publish(self, topic: str, payload: bytes, qos: int = 0, *, retain: bool = False) -> None:
        await self._client.publish(topic, payload, qos, retain)

    async def disconnect(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await self._client.__aexit__(None, None, None)

    async def cut(self) -> None:
        connection: Any = self._client._client.socket()
        connection.shutdown(socket.SHUT_RDWR)
        await asyncio.wait_for(self._reading, TIMEOUT_S)
        with contextlib.suppress(aiomqtt.MqttError):
            await self._client.__aexit__(None, None, None)


class GmqttClient(Client):
    """gmqtt, which is written for asyncio."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        will = options.will
        more: dict[str, Any] = {}
        if options.version is Version.V5:
            more = {"session_expiry_interval": KEPT_S if options.is_kept else 0, "receive_maximum": 65_535}
        self._client = gmqtt.Client(
            options.client_id,
            clean_session=not options.is_kept,
            will_message=gmqtt.Message(will.topic, will.payload, will.qos, will.retain) if will else None,
            **more,
        )
        self._client.set_config({"reconnect_retries": 0})
        self._subscribed = asyncio.Event()
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        self._client.on_message = self._on_message

    def _on_message(self, client: Any, topic: str, payload: Any, qos: int, properties: dict[str, Any]) -> int:
        self.messages.put_nowait(Message(topic, bytes(payload), qos, bool(properties.get("retain"))))
        return 0

    async def connect(self, port: int) -> None:
        await self._client.connect(HOST, port, version=int(self.options.version), raise_exc=True)

    async def subscribe(self, filter: str, qos: int = 0) -> None:
        self._subscribed.clear()
        self._client.subscribe(filter, qos)
        async with asyncio.timeout(TIMEOUT_S):
            await self._subscribed.wait()

    async def publish(self, topic: str, payload: bytes, qos: int = 0, *, retain: bool = False) -> None:
        self._client.publish(topic, payload, qos, retain)
        async with asyncio.timeout(TIMEOUT_S):
            await self._client._persistent_storage.wait_empty()

    async def disconnect(self) -> None:
        await self._client.disconnect()

    async def cut(self) -> None:
        self._client._connection._transport.abort()
        await asyncio.sleep(0)


LIBRARIES: list[type[Client]] = [PahoClient, AiomqttClient, GmqttClient]
