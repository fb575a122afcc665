"""How an MQTT connection comes about: where to, over what, and until when the server must have accepted."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.client.authentication import Login
from penstock.client.errors import ConnectionRefused
from penstock.client.greeting import greet
from penstock.client.stream import LARGEST_PACKET_BYTES, PacketStream
from penstock.wire.mqtt.packets import ConnAck, Connect

if TYPE_CHECKING:
    from penstock.client.mqtt import MqttClient


class Destination(NamedTuple):
    """Where a server is, and what lies between."""

    host: str
    port: int
    timeout_s: float
    tls: ssl.SSLContext | None = None
    websocket_path: str | None = None

    async def reach(self, connect: Connect, login: Login | None) -> tuple[PacketStream, ConnAck]:
        """Connect and be accepted.

        Raises:
            ConnectionRefused: nobody answered in time, or the server said no.
        """
        try:
            async with asyncio.timeout(self.timeout_s):
                stream = await self._open(connect)
                try:
                    return stream, await greet(stream, connect, login)
                except BaseException:
                    stream.abort()
                    raise
        except TimeoutError:
            text = f"no answer from {self.host}:{self.port} within {self.timeout_s:g} s"
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


class Connecting:
    """A connection being made: await it for a client, or enter it for one that disconnects at the end."""

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
