"""One reader goes from door to door: it stops at one, and goes on behind the same message at the next."""

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct, json

import penstock
from penstock.cli.demo.page import subscribe
from penstock.cli.demo.plant import FILTER
from penstock.cli.demo.screen import Screen
from penstock.cli.demo.server import DemoServer
from penstock.cli.demo.tally import Key, Tally
from penstock.client import Statement

PART = 300
"""How many messages are read at a door before the reader goes on at the next."""


class Part(Struct):
    """What was read at one door, and where that ended."""

    door: str
    keys: list[Key]
    cursor: str


class Course(Struct):
    """The whole way, and what the last door says of its end."""

    parts: list[Part]
    statement: Statement

    @property
    def keys(self) -> list[Key]:
        """All messages, in the order in which they were read."""
        return [key for part in self.parts for key in part.keys]

    @property
    def cursor(self) -> str:
        """Behind everything that was read."""
        return self.parts[-1].cursor


async def follow(server: DemoServer, tally: Tally) -> Course:
    """Go on where the historian was, over WebSocket, then gRPC, then HTTP."""
    first = Part("MQTT", tally.historian, tally.cursor)
    second = await _read_websocket(server, first.cursor)
    third = await _read_grpc(server, second.cursor)
    fourth, statement = _read_http(server, third.cursor)
    return Course([first, second, third, fourth], statement)


async def _read_websocket(server: DemoServer, after: str) -> Part:
    from websockets.asyncio.client import connect  # noqa: PLC0415 - only for who runs the demonstration

    part = Part("WebSocket", [], after)
    # Without a limit for what waits: it leaves in the middle, and the goodbye is behind the rest.
    async with connect(server.websocket_address, max_queue=None) as socket:
        await subscribe(socket, FILTER, after)
        while len(part.keys) < PART:
            event = json.decode(await socket.recv())
            if event["type"] == "event":
                part.keys.append((event["topic"], event["sequence"]))
                part.cursor = event["cursor"]
    return part


async def _read_grpc(server: DemoServer, after: str) -> Part:
    part = Part("gRPC", [], after)
    async with (
        penstock.connect(server.grpc_address) as client,
        client.subscribe(FILTER, after=after) as messages,
    ):
        async for message in messages:
            is_end_of_batch = message.cursor is not None and message.cursor != part.cursor
            part.keys.append((message.topic, message.sequence))
            part.cursor = message.cursor or part.cursor
            if len(part.keys) >= PART and is_end_of_batch:  # only there the cursor is right behind it
                break
    return part


def _read_http(server: DemoServer, after: str) -> tuple[Part, Statement]:
    part = Part("HTTP", [], after)
    with server.client() as client:
        read = client.read_log(after=after, filters=[FILTER], columns=["topic", "sequence"])
        with read:
            for batch in read:
                part.keys += zip(
                    batch.column("topic").to_pylist(), batch.column("sequence").to_pylist(), strict=True
                )
        part.cursor = read.statement.next
        return part, read.statement


def missing_of(keys: Iterable[Key]) -> int:
    """How many sequences are not there, from 1 to the last one of each topic."""
    found: dict[str, set[int]] = {}
    for topic, sequence in keys:
        found.setdefault(topic, set()).add(sequence)
    return sum(max(sequences) - len(sequences) for sequences in found.values())


def doubles_of(keys: Iterable[Key]) -> int:
    """How many messages came more than once."""
    return sum(times - 1 for times in Counter(keys).values())


async def tell(server: DemoServer, tally: Tally, screen: Screen) -> Course:
    """The chapter: go on, and prove that nothing is missing and nothing came twice."""
    screen.say(
        f"A historian was reading {FILTER} over MQTT. It was switched off after {len(tally.historian):,} "
        "messages. All it kept is the cursor of the last one. With that it goes on at the other doors:"
    )
    course = await follow(server, tally)
    rows = [(part.door, len(part.keys), part.cursor) for part in course.parts]
    screen.table(("door", "messages", "cursor at the end"), rows)
    keys, statement = course.keys, course.statement
    screen.say(
        f"The last door ends with a statement: served {statement.served:,}, missing "
        f"{len(statement.missing)}, complete: {'yes' if statement.is_complete else 'no'}."
    )
    topics, published = len({topic for topic, _ in keys}), server.count(FILTER)
    screen.check(len(keys) == published, f"{published:,} messages of {topics} topics were published and read")
    screen.check(missing_of(keys) == 0, "none is missing: the sequences of every topic are without a hole")
    screen.check(doubles_of(keys) == 0, "none came twice")
    screen.check(statement.is_complete, "the server says the same")
    return course
