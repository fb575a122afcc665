"""Ten thousand damaged packets over real connections: each connection ends, and nobody else notices."""

import asyncio
import socket
from random import Random

import pytest

from penstock.wire.mqtt import Disconnect, PacketReader, ReasonCode, Version
from tests.doors.mqtt.peers import Peers
from tests.faults.watching import MIB, Costs, Witness
from tests.fuzz.damage import damaged
from tests.support.servers import RunningServer, StartServer
from tests.wire.mqtt.case import connect
from tests.wire.mqtt.catalogue import BAD, DERIVED, GOOD

AT_ONCE = 100
LARGEST_BYTES = 1_000_000
SAMPLES = [case.data for case in (*GOOD, *BAD, *DERIVED)]
HELLO = {
    Version.V311: connect(4, b"\x02\x00\x00\x00\x00"),
    Version.V5: connect(5, b"\x02\x00\x00\x00\x00\x00"),
}


@pytest.fixture(scope="module")
def victim(start_server: StartServer) -> RunningServer:
    return start_server({"sessions": {"max_expiry_s": 1}})


class Attack:
    """One connection: good or bad words at first, then damaged packets."""

    def __init__(self, dice: Random, port: int) -> None:
        self._version = dice.choice(list(Version))
        hello = HELLO[self._version]
        is_let_in = dice.random() < 0.8
        packets = [hello if is_let_in else damaged(hello, dice, SAMPLES)]
        packets += [damaged(dice.choice(SAMPLES), dice, SAMPLES) for _ in range(dice.randrange(1, 4))]
        self._socket = socket.create_connection(("127.0.0.1", port), 20)
        self._is_let_in = is_let_in
        self.said = b"".join(packets)

    def begin(self) -> None:
        """Say all of it, and that there is nothing more to come."""
        try:
            self._socket.sendall(self.said)
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the server has heard enough

    def end(self) -> str | None:
        """Hear what the server says until it closes; answer what was wrong with that."""
        reader = PacketReader(LARGEST_BYTES, self._version)
        try:
            while chunk := self._socket.recv(65_536):
                if self._is_let_in:  # else it is not known which version it speaks
                    reader.feed(chunk)
        except ConnectionResetError:
            pass
        except TimeoutError:
            return "never closed"
        finally:
            self._socket.close()
        return None if reader.error is None else f"answered with what is not MQTT: {reader.error}"


def attack(dice: Random, count: int, port: int) -> list[str]:
    """Tell of every connection that did not end as it should."""
    complaints: list[str] = []
    for _ in range(count // AT_ONCE):
        attacks = [Attack(dice, port) for _ in range(AT_ONCE)]
        for each in attacks:
            each.begin()
        for each in attacks:
            complaint = each.end()
            if complaint:
                complaints.append(f"{complaint} after {each.said!r}")
    return complaints


@pytest.mark.parametrize(
    "second",
    [
        connect(9, b"\x02\x00\x00\x00\x00\x00"),
        b"\x10\x0e\x00\x06MQIsdp\x03\x02\x00\x00\x00\x00",
        HELLO[Version.V5],
    ],
    ids=["of no version", "of an old version", "of the same version"],
)
async def test_second_connect_is_a_protocol_error_whatever_is_wrong_with_it(
    victim: RunningServer, peers: Peers, second: bytes
) -> None:
    """What is wrong with a CONNECT is for CONNACK to say; no DISCONNECT may carry such a reason."""
    client = await peers.connect(port=victim.port)
    await client.send_bytes(second)
    reasons = [word.reason for word in await client.last_words() if isinstance(word, Disconnect)]
    assert reasons == [ReasonCode.PROTOCOL_ERROR]


async def test_damaged_packets_end_their_connection_and_harm_nobody(
    victim: RunningServer, dice: Random, scale: int
) -> None:
    await asyncio.to_thread(attack, dice, AT_ONCE, victim.port)  # what is made once is made now
    costs = Costs(victim)
    async with Witness(victim):
        assert await asyncio.to_thread(attack, dice, 5_000 * scale, victim.port) == []
    await costs.are_back()
    assert costs.more_bytes < 10 * MIB
