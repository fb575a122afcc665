"""Scripted MQTT server, for behaviour that no real server shows."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from penstock.client import PacketStream, Version
from penstock.wire.mqtt.packets import ConnAck, Connect, Disconnect

Script = Callable[[PacketStream], Awaitable[None]]

ACCEPTED = ConnAck()
PATIENCE_S = 20.0


@contextlib.asynccontextmanager
async def scripted(script: Script, version: Version = Version.V5) -> AsyncIterator[int]:
    """A server that follows a script with its first client; the port it listens on. Its failures are ours."""
    played: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with PacketStream(reader, writer, version) as stream:
            try:
                await script(stream)
            except Exception as error:
                played.set_exception(error)
            else:
                played.set_result(None)

    listener = await asyncio.start_server(on_connection, "127.0.0.1", 0)
    async with listener:
        yield listener.sockets[0].getsockname()[1]
        async with asyncio.timeout(PATIENCE_S):
            await played


async def welcome(stream: PacketStream, connack: ConnAck = ACCEPTED) -> Connect:
    """Take a CONNECT and answer it."""
    connect = await stream.receive(PATIENCE_S)
    assert isinstance(connect, Connect)
    await stream.send(connack)
    return connect


async def farewell(stream: PacketStream) -> None:
    """Take the goodbye of a client that has nothing else to say."""
    assert isinstance(await stream.receive(PATIENCE_S), Disconnect)
