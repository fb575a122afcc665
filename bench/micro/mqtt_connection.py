"""CPU time of MQTT messages through their connections, without sockets.

    python -m bench.micro.mqtt_connection [--seconds 0.005] [--repeats 300]

Chunks of bytes go to a connection as a socket would give them, and what is written is counted and dropped. So
the figure is of the server alone: reading, publishing, delivery, acknowledgements. It is CPU time, the least
of many short repeats, so that a busy machine changes it little. To compare two versions, run them in turns.
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable

from penstock.app import Server
from penstock.config import load
from penstock.doors.mqtt.connection import Connection
from penstock.doors.mqtt.door import MqttDoor
from penstock.net.turn_shares import TurnShares
from penstock.wire.mqtt import Connect, Packet, PubAck, Publish, Request, Subscribe, Version, encode_packet

CHUNK = 64
"""Messages of one chunk."""
SUBSCRIBERS = 200
BATCH = 20
"""Rounds between two looks at the clock."""


class NullTransport(asyncio.Transport):
    """Counts what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.writes = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes += 1

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Client:
    """One connection of a door, and its transport."""

    def __init__(self, door: MqttDoor, client_id: str) -> None:
        self.transport = NullTransport()
        self._connection = Connection(door)
        self._connection.connection_made(self.transport)
        self.send(Connect(client_id, Version.V5))

    def send(self, *packets: Packet) -> None:
        """Give packets to the connection as one chunk."""
        self.feed(b"".join(encode_packet(packet, Version.V5) for packet in packets))

    def feed(self, data: bytes) -> None:
        """Give bytes to the connection."""
        self._connection.data_received(data)

    async def subscribe(self, qos: int) -> None:
        """Subscribe to all topics."""
        self.send(Subscribe(1, (Request("#", qos),)))
        await asyncio.sleep(0)


async def acknowledged(door: MqttDoor) -> tuple[Callable[[], None], int]:
    """One message at QoS 1, acknowledged by the server and by its subscriber."""
    publisher, subscriber = Client(door, "p"), Client(door, "s")
    await subscriber.subscribe(1)
    message = encode_packet(Publish("t", b"x" * 32, 1, packet_id=1), Version.V5)
    acks = [encode_packet(PubAck(number), Version.V5) for number in range(1, 65_536)]
    delivered = 0

    def publish() -> None:
        nonlocal delivered
        publisher.feed(message)
        door.broker.flush()
        subscriber.feed(acks[delivered])
        delivered = (delivered + 1) % len(acks)

    return publish, 1


async def chunked(door: MqttDoor) -> tuple[Callable[[], None], int]:
    """A chunk of messages at QoS 0 for one subscriber."""
    publisher, subscriber = Client(door, "p"), Client(door, "s")
    await subscriber.subscribe(0)
    messages = [Publish(f"t/{number % 8}", b"x" * (32 + number % 3)) for number in range(CHUNK)]
    data = b"".join(encode_packet(message, Version.V5) for message in messages)

    def publish() -> None:
        publisher.feed(data)
        door.broker.flush()

    return publish, CHUNK


async def fanned_out(door: MqttDoor) -> tuple[Callable[[], None], int]:
    """One message at QoS 0 for many subscribers; the figure is for each delivery."""
    publisher = Client(door, "p")
    for number in range(SUBSCRIBERS):
        await Client(door, f"s{number}").subscribe(0)
    message = encode_packet(Publish("t", b"x" * 32), Version.V5)

    def publish() -> None:
        publisher.feed(message)
        door.broker.flush()

    return publish, SUBSCRIBERS


STORIES: dict[str, Callable[[MqttDoor], Awaitable[tuple[Callable[[], None], int]]]] = {
    "QoS 1, acknowledged": acknowledged,
    f"QoS 0, {CHUNK} in a chunk": chunked,
    f"QoS 0 to {SUBSCRIBERS} subscribers": fanned_out,
}


async def measure(story: str, seconds: float, repeats: int) -> float:
    """Least CPU time in microseconds for one message or delivery."""
    door = Server(load(flags={}).settings).mqtt
    door.shares = TurnShares(door.loop, clock=lambda: 0.0)  # else input would wait for later turns
    publish, count = await STORIES[story](door)
    await asyncio.sleep(0)
    figures = [await _measure_once(publish, seconds) / count for _ in range(repeats)]
    return min(figures) * 1_000_000


async def _measure_once(publish: Callable[[], None], seconds: float) -> float:
    rounds, began = 0, time.process_time()
    while (took := time.process_time() - began) < seconds:
        for _ in range(BATCH):
            publish()
        rounds += BATCH
        await asyncio.sleep(0)
    return took / rounds


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=0.005, help="CPU time of one repeat")
    parser.add_argument("--repeats", type=int, default=300)
    options = parser.parse_args()
    for story in STORIES:
        figure = asyncio.run(measure(story, options.seconds, options.repeats))
        print(f"{figure:7.3f} us  {story}")


if __name__ == "__main__":
    main()
