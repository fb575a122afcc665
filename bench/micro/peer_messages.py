"""CPU of batches between shards, per message.

    python -m bench.micro.peer_messages [--payload 100] [--rounds 9]

*encode* makes the frame of a batch and *decode* makes runs of it: conversion, msgpack, checks and framing.
*link* is the whole way over two peer links, with windows, the settlement and its acknowledgements; sockets
and the commit are left out. Messages to many topics are a run each; neighbours of one topic share one.
"""

import argparse
from collections.abc import Callable
from functools import partial
from time import process_time_ns

from penstock.build import build_text
from penstock.cluster.actions import Action, Connect, Send, Take
from penstock.cluster.forwards import ForwardNumbers
from penstock.cluster.link import Link, LinkSettings, ProcessIdentity
from penstock.model import Door
from penstock.runs import Run, Shape
from penstock.wire.peer import Batch, FrameReader, encode_frame

SHAPE = Shape("mqtt-3.1.1", Door.MQTT, 1, retain=False, is_plain=True)
HEAD = 20
MESSAGES_A_ROUND = 20_000
RUNS_A_CHUNK = 10
"""Runs that a publisher's chunk has for one shard."""
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


class LinkPair:
    """Two links, and the frames between them."""

    def __init__(self) -> None:
        self.sender, self.receiver = (
            Link(
                ProcessIdentity("bench", name, 1),
                "receiver" if name == "sender" else "sender",
                is_dialler=name == "sender",
                numbers=ForwardNumbers(),
                random=lambda: 0.5,
                now=0.0,
                settings=LinkSettings(),
            )
            for name in ("sender", "receiver")
        )
        self._readers = {self.sender: FrameReader(), self.receiver: FrameReader()}
        (dial,) = self.sender.on_time(0.0)
        assert isinstance(dial, Connect)
        self.receiver.on_connected(0.0, dial.connection)
        self._pass_on(self.sender.on_connected(0.0, dial.connection), self.receiver)

    def send(self, batch: Batch) -> None:
        """All runs of a batch: handed in, sent, taken, settled and acknowledged."""
        for at in range(0, len(batch.runs), RUNS_A_CHUNK):
            self.sender.publish(0.0, batch.origin, batch.shard, batch.runs[at : at + RUNS_A_CHUNK], at)
        self._pass_on(self.sender.flush(), self.receiver)

    def _pass_on(self, actions: list[Action], receiver: Link) -> None:
        for action in actions:
            if isinstance(action, Send):
                for message in self._readers[receiver].feed(encode_frame(action.message)):
                    other = self.sender if receiver is self.receiver else self.receiver
                    self._pass_on(receiver.on_message(0.0, 1, message), other)
            elif isinstance(action, Take):
                taker = self.sender if receiver is self.receiver else self.receiver
                self._pass_on(taker.on_taken(action), receiver)


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
    print(
        f"{'messages':>9} {'in a run':>9} {'bytes':>8} {'encode':>7} {'decode':>7} {'both':>6} {'link':>6}"
        "  ns/message"
    )
    pair = LinkPair()
    for messages, per_run in CASES:
        batch = make_batch(messages, per_run, options.payload)
        frame, reader = encode_frame(batch), FrameReader()
        count = MESSAGES_A_ROUND // messages
        sent, read, whole = (
            cost(action, count, options.rounds) / messages
            for action in (
                partial(encode_frame, batch),
                partial(reader.feed, frame),
                partial(pair.send, batch),
            )
        )
        print(
            f"{messages:>9} {per_run:>9} {len(frame):>8} {sent:>7.0f} {read:>7.0f} {sent + read:>6.0f}"
            f" {whole:>6.0f}"
        )
    assert pair.sender.unsettled(batch.shard) == (0, 0), "everything was settled"


if __name__ == "__main__":
    main()
