"""What streams cost: memory for each of many, and time for each send and receive.

    python bench/streams_memory.py [--streams 1000000] [--operations 200000]

Memory is what the process takes more than before, divided by the number of streams: everything is in it that
a stream brings with it, its topic and its last message in a ring too. Each stream gets one small message,
which stays there, or is received at once.
"""

import argparse
import gc
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from time import process_time_ns
from uuid import UUID

from penstock.core.access import Identity
from penstock.core.settings import CoreSettings, StreamSettings, TopicLimits
from penstock.core.streams.sending import Sending
from penstock.core.streams.waits import Handover
from penstock.testing import Stage

SENDER, RECEIVER = Identity(None, "sender"), Identity(None, "receiver")
PAYLOAD = b'{"temperature":21.5}'
HOT_STREAMS = 32
BATCH = 100
"""Operations in one turn of the loop."""


def resident_bytes() -> int:
    """What the process takes at this moment."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096


def make_stage(streams: int) -> Stage:
    """A broker with room for so many streams."""
    room = 2 * streams + 1_000
    limits = StreamSettings(max_streams=room, total_bytes=room * 1_024)
    return Stage(CoreSettings(streams=limits, topic=TopicLimits(max_topics=room)))


def send(stage: Stage, topic: str, number: int) -> None:
    """Send one small message."""
    message_id = str(UUID(int=number))
    stage.broker.streams.send(Sending(topic, PAYLOAD, message_id, SENDER), lambda outcome: None)


def take(handover: Handover) -> bool:
    """Receive whatever comes."""
    return True


def receive(stage: Stage, topic: str, wait_s: float = 0.0) -> None:
    """Receive one message."""
    stage.broker.streams.receive(topic, RECEIVER, wait_s, take, lambda error: None)


def measure_memory(count: int, is_received: bool) -> float:
    """Bytes for each stream."""
    stage = make_stage(count)
    before = resident_bytes()
    for number in range(count):
        topic = f"site/room/{number:07}"
        send(stage, topic, number)
        if is_received:
            receive(stage, topic)
        if number % BATCH == 0:
            stage.settle()
    stage.settle()
    gc.collect()
    assert stage.broker.streams.buffers.messages == (0 if is_received else count)
    return (resident_bytes() - before) / count


def measure_time(count: int, *, is_awaited: bool) -> float:
    """Microseconds for a send and a receive, whichever comes first."""
    stage = make_stage(HOT_STREAMS)
    topics = [f"site/room/{number}" for number in range(HOT_STREAMS)]
    start = process_time_ns()
    for number in range(count):
        topic = topics[number % HOT_STREAMS]
        if is_awaited:
            receive(stage, topic, 30.0)
        send(stage, topic, number)
        if not is_awaited:
            receive(stage, topic)
        if number % BATCH == 0:
            stage.settle()
    return (process_time_ns() - start) / count / 1_000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=1_000_000)
    parser.add_argument("--operations", type=int, default=200_000)
    options = parser.parse_args()
    print(f"{measure_time(options.operations, is_awaited=False):8.2f} us  send, then receive")
    print(f"{measure_time(options.operations, is_awaited=True):8.2f} us  receive, then send")
    with ProcessPoolExecutor(1, max_tasks_per_child=1) as fresh:  # so that memory is not used again
        kept = fresh.submit(measure_memory, options.streams, False).result()
        empty = fresh.submit(measure_memory, options.streams, True).result()
    print(f"{kept:8.0f} B   a stream with a small message, of {options.streams}")
    print(f"{empty:8.0f} B   an empty stream, of {options.streams}")


if __name__ == "__main__":
    main()
