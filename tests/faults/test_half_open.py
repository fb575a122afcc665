"""Connections that never come to the point: all of them are closed in time, and others are served."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random

from penstock.common.scram import METHOD
from penstock.wire.mqtt import Connect, PacketProperties, PacketType, Version, encode_packet
from tests.faults.watching import MIB, Costs, Witness
from tests.support.servers import StartServer
from tests.wire.mqtt.case import connect

AUTH = bytes((PacketType.AUTH << 4,))
HELLO = connect(5, b"\x02\x00\x00\x00\x00\x00")
TRICKLE_S = 0.1

Script = Callable[[asyncio.StreamWriter], Coroutine[None, None, None]]


async def say_nothing(writer: asyncio.StreamWriter) -> None:
    """Only be there."""


async def say_half(writer: asyncio.StreamWriter) -> None:
    writer.write(HELLO[: len(HELLO) // 2])


async def announce(writer: asyncio.StreamWriter) -> None:
    """The header of a CONNECT of 60,000 bytes."""
    writer.write(b"\x10\xe0\xd4\x03\x00\x04MQTT\x05")


async def say_half_a_header(writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x10\x80")


async def trickle(writer: asyncio.StreamWriter) -> None:
    """One byte after the other, of a CONNECT that would take minutes."""
    data = b"\x10\xe0\xd4\x03\x00\x04MQTT\x05\x02\x00\x00\x00\xff\xff" + b"c" * 1_000
    for byte in data:
        writer.write(bytes((byte,)))
        await asyncio.sleep(TRICKLE_S)


async def begin_to_prove(writer: asyncio.StreamWriter) -> None:
    """A good CONNECT that begins SCRAM, whose next step never comes."""
    steps = PacketProperties(authentication_method=METHOD, authentication_data=b"n,,n=somebody,r=x")
    writer.write(encode_packet(Connect("", Version.V5, properties=steps), Version.V5))


SCRIPTS: tuple[Script, ...] = (say_nothing, say_half, announce, say_half_a_header, trickle, begin_to_prove)


async def linger(port: int, script: Script) -> bytes:
    """Follow a script until the server closes; answer what it said."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    acting = asyncio.create_task(script(writer))
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        acting.cancel()
        writer.transport.abort()


async def test_half_open_connections_are_closed_in_time(
    start_server: StartServer, dice: Random, scale: int, tmp_path: Path
) -> None:
    """A thousand with the default time in a soak."""
    timeout_s = 1 if scale == 1 else 10
    (tmp_path / "passwords").write_text("# nobody\n")
    access = {"password_file": str(tmp_path / "passwords"), "allow_anonymous": True}
    server = start_server({"mqtt": {"connect_timeout_s": timeout_s}, "access": access})
    count = 200 if scale == 1 else 1_000
    async with Witness(server):
        costs = Costs(server)
        lingering = [asyncio.create_task(linger(server.port, dice.choice(SCRIPTS))) for _ in range(count)]
        async with asyncio.timeout(timeout_s + 10):
            said = await asyncio.gather(*lingering)
        assert {words[:1] for words in said} == {b"", AUTH}  # a question is all that was ever said
        await costs.are_back()
    assert costs.more_bytes < 20 * MIB
