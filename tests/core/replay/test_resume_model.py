"""Streams that are cut and resumed, against a model that remembers everything.

However often the server dies meanwhile: what a reader has not seen comes once and in order, or it is told.
"""

import asyncio
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from penstock.common.cursor import Cursor, Position
from penstock.common.statement import Statement
from penstock.common.topics import matches
from penstock.core.replay.catch_up import AfterSequences, Foresight
from penstock.core.settings import CoreSettings, LogSettings, RingSettings
from tests.core.replay.followers import Joiner, is_told
from tests.support.broker import Client, Stage
from tests.support.disk import Disk
from tests.support.examples import examples

TOPICS = ("a", "b", "t/x")
FILTERS = (("a",), ("a", "b"), ("#",), ("a", "t/#"))
CAPTURES = ((), ("#",), ("a", "t/#"))
Move = tuple[str, str, int]

MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.sampled_from(TOPICS), st.integers(1, 4)),
        st.tuples(st.just("publish"), st.sampled_from(TOPICS), st.integers(1, 4)),
        st.tuples(st.sampled_from(["turn", "sync", "pause", "unpause", "crash"]), st.just(""), st.just(0)),
        st.tuples(st.just("trim"), st.just(""), st.integers(0, 4)),
        st.tuples(st.just("cut"), st.just(""), st.integers(0, 4)),
        st.tuples(st.just("resume"), st.sampled_from(["", *TOPICS]), st.just(0)),
    ),
    min_size=8,
    max_size=50,
)


class Message(Struct, frozen=True):
    """One that was published and is not undone by a crash."""

    offset: int
    topic: str
    sequence: int
    payload: bytes


class Reader:
    """A client with one subscription: what it has seen, and the stream that it has now."""

    def __init__(self, filters: tuple[str, ...]) -> None:
        self.filters = filters
        self.seen: set[bytes] = set()
        self.missed: set[bytes] = set()  # it was told that these will not come
        self.sequences: dict[str, int] = {}
        self.stale: dict[str, int] = {}  # those that it had when it came to the present epoch
        self.stream: Joiner | None = None
        self.began = 0  # the newest offset when its present stream began
        self.position, self.epoch = 0, 1

    def wants(self, message: Message) -> bool:
        return any(matches(filter, message.topic) for filter in self.filters)


class World:
    """A disk, the server on it, one who publishes, and one who reads."""

    def __init__(self, ring: int, capture: tuple[str, ...], filters: tuple[str, ...], is_stuck: bool) -> None:
        self.disk = Disk()
        self.disk.is_stuck = is_stuck
        self.settings = CoreSettings(ring=RingSettings(messages=ring), log=LogSettings(capture=capture))
        self.messages: list[Message] = []
        self.ends = [0]
        self.count = 0
        self.stage: Stage
        self.sender: Client
        self.reader = Reader(filters)
        self.start()

    def start(self) -> None:
        self.stage = Stage(self.settings, disk=self.disk)
        self.sender = self.stage.client("s")

    async def act(self, move: Move) -> None:
        kind, name, number = move
        stream = self.reader.stream
        if kind == "publish":
            self.publish(name, number)
        elif kind == "turn":
            self.stage.scheduler.turn()
        elif kind == "sync":
            self.disk.sync()
        elif kind in ("pause", "unpause") and stream is not None:
            getattr(stream.client, kind)()
        elif kind == "crash":
            self.crash()
        elif kind == "trim":
            reach = max(self.stage.log.last_offset - number, self.disk.content.first_offset - 1)
            self.disk.trim(max(end for end in self.ends if end <= reach))
        elif kind == "cut" and stream is not None:
            self.cut(stream, number)
        elif kind == "resume" and stream is None:
            await self.resume(without=name)

    def publish(self, topic: str, count: int) -> None:
        payloads = [f"{self.count + number:05}".encode() for number in range(count)]
        self.count += count
        run = self.sender.publish(topic, *payloads).run
        for number, payload in enumerate(payloads):
            self.messages.append(Message(run.offset + number, topic, run.sequence + number, payload))
        self.ends.append(run.offset + count - 1)

    def crash(self) -> None:
        """The server dies, with what was not committed; of the stream the store knows where it began."""
        reader = self.reader
        if reader.stream is not None:
            self.see(reader.stream, 0)
            reader.position = reader.began
            reader.stream = None
        self.disk.crash()
        end = self.disk.content.last_offset
        self.messages = [message for message in self.messages if message.offset <= end]
        self.ends = [each for each in self.ends if each <= end]
        self.start()

    def cut(self, stream: Joiner, unread: int) -> None:
        """The connection ends; some of what had left was not read."""
        reader, broker = self.reader, self.stage.broker
        self.see(stream, unread)
        reader.position = reader.began if unread else broker.position_of(stream.client.session)
        stream.client.drop()
        reader.stream = None

    def see(self, stream: Joiner, unread: int) -> None:
        deliveries = stream.client.connection.deliveries
        for each in deliveries[: max(len(deliveries) - unread, 0)]:
            self.reader.seen.add(each.payload)
            self.reader.sequences[each.topic] = each.sequence

    async def resume(self, without: str) -> None:
        """Go on with the sequences that the client has, but for one topic; check what comes of it."""
        reader, history = self.reader, self.stage.broker.history
        named = dict(reader.sequences.items() - reader.stale.items())
        named.pop(without, None)
        place = Cursor((Position(history.log.log_id, reader.epoch, reader.position),))
        stream = reader.stream = Joiner(self.stage, f"r{self.count}-{history.head}-{len(self.ends)}")
        stream.join(reader.filters, AfterSequences(named, reader.epoch, place))
        if reader.epoch != history.log.epoch:
            reader.stale = dict(reader.sequences)
        reader.epoch, reader.began = history.log.epoch, history.head
        await stream.settle()
        self.check(stream, named, place)

    def check(self, stream: Joiner, named: dict[str, int], place: Cursor) -> None:
        reader = self.reader
        deliveries = stream.client.connection.deliveries
        by_payload = {message.payload: message for message in self.messages}
        got = [by_payload[each.payload] for each in deliveries]
        offsets = [message.offset for message in got]
        assert offsets == sorted(set(offsets)), "in one order, and nothing twice"
        assert not [message for message in got if message.topic in named and message.payload in reader.seen]
        (foresight,), (statement,) = stream.foresights, stream.statements
        assert foresight is not None
        assert stream.begun == [0]
        end = min(place.positions[0].offset, self.stage.broker.history.end_of(place.positions[0].epoch))
        left = [each for each in self.messages if each.topic not in named and each.offset <= end]
        reader.missed |= {message.payload for message in left}  # whoever does not say otherwise has got it
        absent = [
            message
            for message in self.messages
            if reader.wants(message)
            and message.payload not in reader.seen | reader.missed
            and message.offset not in offsets
        ]
        told = [each for each in absent if is_told(statement, each.topic, each.sequence, each.offset)]
        assert told == absent or foresight.missed is None, f"of {absent} some are lost silently"
        reader.missed |= {message.payload for message in absent}
        self.check_foresight(foresight, statement)
        self.check_topics(got, statement)

    def check_foresight(self, foresight: Foresight, statement: Statement) -> None:
        if foresight.missed is None:
            assert foresight.is_gap
            return
        told = sum(each.last - (each.first or 0) + 1 for each in statement.missing)
        assert all(each.first is not None for each in statement.missing)
        assert foresight == Foresight(told, told > 0)
        assert statement.gaps == () or told

    def check_topics(self, got: Sequence[Message], statement: Statement) -> None:
        """What is said of each topic is what came."""
        past = [message for message in got if message.offset <= statement.next.positions[0].offset]
        served = {each.topic: (each.count, each.last) for each in statement.topics}
        expected: dict[str, tuple[int, int]] = {}
        for message in past:
            expected[message.topic] = (expected.get(message.topic, (0, 0))[0] + 1, message.sequence)
        assert served == expected


@examples(75)
@given(
    ring=st.integers(0, 6),
    capture=st.sampled_from(CAPTURES),
    filters=st.sampled_from(FILTERS),
    is_stuck=st.booleans(),
    journal=MOVES,
)
def test_whatever_is_not_seen_comes_once_or_is_told(
    ring: int, capture: tuple[str, ...], filters: tuple[str, ...], is_stuck: bool, journal: list[Move]
) -> None:
    async def play() -> None:
        world = World(ring, capture, filters, is_stuck)
        await world.resume(without="")
        for move in journal:
            await world.act(move)
        if world.reader.stream is None:
            await world.resume(without="")

    asyncio.run(play())
