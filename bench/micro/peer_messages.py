"""CPU of encoding and decoding batches between shards, per message.

    python -m bench.micro.peer_messages [--payload 100] [--rounds 9]

The sender makes the frame of a batch, the receiver makes runs of it: conversion, msgpack, checks and framing,
without sockets. Messages to many topics are a run each; neighbours of one topic and length are one run.
"""

import argparse
from collections.abc import Callable
from time import process_time_ns

from penstock.build import build_text
from penstock.model import Door
from penstock.runs import Run, Shape
from penstock.wire.peer import Batch, FrameReader, encode_frame

SHAPE = Shape("mqtt-3.1.1", Door.MQTT, 1, retain=False, is_plain=True)
HEAD = 20
MESSAGES_A_ROUND = 20_000
CASES = ((1, 1), (10, 1), (10, 10), (100, 1), (100, 10), (100, 100))
"""Messages of a batch, and of a run."""


def make_batch(messages: int, per_run: int, payload: int) -> Batch:
    """A batch as a door makes it: frames of MQTT with topics of 20 characters."""
    stride = HEAD + payload
    runs = [
        Run(
            f"plant/line{number:04}/state",
            bytes(stride * per_run),
            HEAD,
            stride,
            per_run,
            SHAPE,
            packet_id=number + 1,
            client_id="client-0017",
            published_at=1_795_003_200_000_000,
        )
        for number in range(messages // per_run)
    ]
    return Batch(3, 15, 1_000_000, False, runs)


def cost(action: Callable[[], object], count: int, rounds: int) -> float:
    """Least nanoseconds of CPU of an action, of several rounds."""
    best = float("inf")
    for _ in range(rounds):
        start = process_time_ns()
        for _ in range(count):
            action()
        best = min(best, (process_time_ns() - start) / count)
    return best


def main() -> None:
    """Print one line per case."""
    parser = argparse.ArgumentParser(description="Nanoseconds of CPU per message between shards.")
    parser.add_argument("--payload", type=int, default=100, help="bytes of a message")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    print(f"build: {build_text()}")
    print(f"{'messages':>9} {'in a run':>9} {'bytes':>8} {'encode':>7} {'decode':>7} {'both':>6}  ns/message")
    for messages, per_run in CASES:
        batch = make_batch(messages, per_run, options.payload)
        frame, reader = encode_frame(batch), FrameReader()
        count = MESSAGES_A_ROUND // messages
        sent = cost(lambda batch=batch: encode_frame(batch), count, options.rounds) / messages  # type: ignore[misc]
        read = cost(lambda: reader.feed(frame), count, options.rounds) / messages  # noqa: B023 - called here
        print(f"{messages:>9} {per_run:>9} {len(frame):>8} {sent:>7.0f} {read:>7.0f} {sent + read:>6.0f}")


if __name__ == "__main__":
    main()
