"""Whether a client is still there, asked right before its answer is written."""

import socket
import struct
from pathlib import Path

import pytest

from penstock.net.http.request import Request
from penstock.net.tls import Certificates, TlsSettings
from tests.net.http.serving import House, Peer, get
from tests.support.certificates import Authority
from tests.support.waiting import until

RESET = struct.pack("ii", 1, 0)


async def held(house: House, peer: Peer) -> Request:
    """A request whose answer waits, with a connection that is not read meanwhile."""
    await peer.send(get("/later"))
    await house.is_held.wait()
    house.is_held.clear()
    [connection] = house.door.connections
    connection.transport.pause_reading()  # so that only the system knows what comes now
    return house.held[-1]


async def until_left(request: Request) -> None:
    await until(request.has_hung_up, "request has not hung up", timeout_s=20, every_s=0)


async def test_a_client_that_waits_is_there(house: House) -> None:
    await house.open()
    peer = await house.connect()
    waiting = await held(house, peer)
    assert not waiting.has_hung_up()
    await peer.send(get("/hot"))  # what it says does not mean that it goes
    assert not waiting.has_hung_up()
    waiting.respond(200, b"late")
    assert (await peer.answer()).body == b"late"


@pytest.mark.parametrize("how", ["close", "half", "reset", "close after more"])
async def test_a_client_that_hung_up_has_left_before_anyone_has_read_it(house: House, how: str) -> None:
    await house.open()
    peer = await house.connect()
    waiting = await held(house, peer)
    if how == "half":
        peer.writer.write_eof()
    elif how == "reset":
        peer.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        peer.writer.transport.abort()
    else:
        if how != "close":
            await peer.send(get("/hot") * 10)
        peer.writer.close()
    await until_left(waiting)
    assert not waiting.is_disconnected


async def test_the_same_over_tls(house: House, tmp_path: Path) -> None:
    authority = Authority()
    secure = Certificates.load(TlsSettings(certificate_file=authority.issue(tmp_path, "server").both))
    await house.open(certificates=secure)
    peer = await house.connect(tls=authority.client_context())
    waiting = await held(house, peer)
    assert not waiting.has_hung_up()
    peer.writer.transport.abort()
    await until_left(waiting)


async def test_who_is_known_to_have_gone_has_left(house: House) -> None:
    await house.open()
    peer = await house.connect()
    await peer.send(get("/later?watched"))
    await house.is_held.wait()
    await peer.close()
    await house.is_disconnected.wait()
    assert house.held[0].is_disconnected
    assert house.held[0].has_hung_up()
