"""Cost of streams: memory per stream, time per send and receive.

    python -m bench.micro.streams_memory [--streams 1000000] [--operations 200000]

Memory is the growth of the process divided by the number of streams. It includes the topic of a stream and
its last message in a ring. Each stream gets one small message, which stays there or is received at once.
"""

import argparse
import gc
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from time import process_time_ns
from uuid import UUID

from penstock.common.topics import TopicLimits
from penstock.core.access.identity import Identity
from penstock.core.settings import CoreSettings, StreamSettings
from penstock.core.streams.send_request import Sending
from penstock.core.streams.waiters import Handover
from tests.support.broker import Stage

SENDER, RECEIVER = Identity(None, "sender"), Identity(None, "receiver")
PAYLOAD = b'{"temperature":21.5}'
HOT_STREAMS = 32
BATCH = 100
"""Operations per turn of the loop."""


def resident_bytes() -> int:
    """Resident memory of this process."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096


def make_stage(streams: int) -> Stage:
    """Broker with limits for this many streams."""
    room = 2 * streams + 1_000
    limits = StreamSettings(max_streams=room, total_bytes=room * 1_024)
    return Stage(CoreSettings(streams=limits, topic=TopicLimits(max_topics=room)))


def send(stage: Stage, topic: str, number: int) -> None:
    """Send one small message."""
    message_id = str(UUID(int=number))
    stage.broker.streams.send(Sending(topic, PAYLOAD, message_id, SENDER), lambda outcome: None)


def take(handover: Handover) -> bool:
    """Accept any message."""
    return True


def receive(stage: Stage, topic: str, wait_s: float = 0.0) -> None:
    """Receive one message."""
    stage.broker.streams.receive(topic, RECEIVER, wait_s, take, lambda error: None)


def measure_memory(count: int, is_received: bool) -> float:
    """Bytes per stream."""
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
    """Microseconds per send and receive."""
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
    with ProcessPoolExecutor(1, max_tasks_per_child=1) as fresh:  # so that freed memory is not reused
        kept = fresh.submit(measure_memory, options.streams, False).result()
        empty = fresh.submit(measure_memory, options.streams, True).result()
    print(f"{kept:8.0f} B   a stream with a small message, of {options.streams}")
    print(f"{empty:8.0f} B   an empty stream, of {options.streams}")


if __name__ == "__main__":
    main()
