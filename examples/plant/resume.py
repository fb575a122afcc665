"""Resume across doors: a reader stops at one door and continues after the same message at the next."""

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct, json
from websockets.asyncio.client import connect

import penstock
from penstock.client import Statement

from .machines import FILTER
from .screen import Screen
from .server import PlantServer
from .traffic import Counts, Key, subscribe

PART = 300
"""Messages read at a door before the reader changes to the next."""


class Part(Struct):
    """Messages read at one door, and the cursor at the end."""

    door: str
    keys: list[Key]
    cursor: str


class Journey(Struct):
    """Parts at all doors, and the statement of the last one."""

    parts: list[Part]
    statement: Statement

    @property
    def keys(self) -> list[Key]:
        """All messages in the order of reading."""
        return [key for part in self.parts for key in part.keys]

    @property
    def cursor(self) -> str:
        """Cursor after the last message."""
        return self.parts[-1].cursor


async def _follow(server: PlantServer, counts: Counts) -> Journey:
    """Continue where the historian stopped: over WebSocket, then gRPC, then HTTP."""
    first = Part("MQTT", counts.historian, counts.cursor)
    second = await _read_websocket(server, first.cursor)
    third = await _read_grpc(server, second.cursor)
    fourth, statement = _read_http(server, third.cursor)
    return Journey([first, second, third, fourth], statement)


async def _read_websocket(server: PlantServer, after: str) -> Part:
    part = Part("WebSocket", [], after)
    # Unlimited queue: the close frame arrives after all events, most of which are not read.
    async with connect(server.websocket_address, max_queue=None) as socket:
        await subscribe(socket, FILTER, after)
        while len(part.keys) < PART:
            event = json.decode(await socket.recv())
            if event["type"] == "event":
                part.keys.append((event["topic"], event["sequence"]))
                part.cursor = event["cursor"]
    return part


async def _read_grpc(server: PlantServer, after: str) -> Part:
    part = Part("gRPC", [], after)
    async with (
        penstock.connect(server.grpc_address) as client,
        client.subscribe(FILTER, after=after) as messages,
    ):
        async for message in messages:
            is_end_of_batch = message.cursor is not None and message.cursor != part.cursor
            part.keys.append((message.topic, message.sequence))
            part.cursor = message.cursor or part.cursor
            if len(part.keys) >= PART and is_end_of_batch:  # only there the cursor is that of this message
                break
    return part


def _read_http(server: PlantServer, after: str) -> tuple[Part, Statement]:
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


def count_missing(keys: Iterable[Key]) -> int:
    """Number of missing sequences, from 1 to the last one of each topic."""
    found: dict[str, set[int]] = {}
    for topic, sequence in keys:
        found.setdefault(topic, set()).add(sequence)
    return sum(max(sequences) - len(sequences) for sequences in found.values())


def count_duplicates(keys: Iterable[Key]) -> int:
    """Number of messages that were read more than once."""
    return sum(times - 1 for times in Counter(keys).values())


async def show_resume(server: PlantServer, counts: Counts, screen: Screen) -> Journey:
    """Resume at every door, and prove that nothing is missing or duplicated."""
    screen.say(
        f"A historian was reading {FILTER} over MQTT. It was switched off after {len(counts.historian):,} "
        "messages. All it kept is the cursor of the last one, with which it resumes at the other doors:"
    )
    journey = await _follow(server, counts)
    rows = [(part.door, len(part.keys), part.cursor) for part in journey.parts]
    screen.table(("door", "messages", "cursor at the end"), rows)
    keys, statement = journey.keys, journey.statement
    screen.say(
        f"The last door ends with a statement: served {statement.served:,}, missing "
        f"{len(statement.missing)}, complete: {'yes' if statement.is_complete else 'no'}."
    )
    topics, published = len({topic for topic, _ in keys}), server.count(FILTER)
    screen.check(len(keys) == published, f"{published:,} messages of {topics} topics were published and read")
    screen.check(count_missing(keys) == 0, "none is missing: the sequences of every topic have no gap")
    screen.check(count_duplicates(keys) == 0, "none was read twice")
    screen.check(statement.is_complete, "the server's statement says the same")
    return journey
