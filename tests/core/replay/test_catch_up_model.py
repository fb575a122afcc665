"""Joins against a model that remembers everything: whatever happens, each message is accounted for once."""

import asyncio
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from penstock.common.cursor import Cursor
from penstock.common.statement import Statement
from penstock.common.topics import matches
from penstock.core.settings import CoreSettings, LogSettings, OutboxSettings, RingSettings
from tests.core.replay.followers import Joiner, is_told
from tests.support.broker import Stage
from tests.support.disk import Disk
from tests.support.examples import examples

TOPICS = ("a", "a/b", "b", "c")
FILTERS = ("a", "a/#", "+", "a/b", "a/+")
OTHER = "other/topic"
"""What no join is about."""
CAPTURES = ((), ("#",), ("a/#",))
Move = tuple[str, str, int, bool]

MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.sampled_from(TOPICS), st.integers(1, 6), st.booleans()),
        st.tuples(st.just("other"), st.just(OTHER), st.integers(1, 3), st.just(False)),
        st.tuples(st.just("join"), st.sampled_from(FILTERS), st.integers(0, 12), st.booleans()),
        st.tuples(st.sampled_from(["turn", "sleep", "sync"]), st.just(""), st.integers(1, 3), st.just(False)),
        st.tuples(st.sampled_from(["pause", "unpause"]), st.just(""), st.just(0), st.just(False)),
        st.tuples(st.just("wait"), st.just(""), st.integers(1, 3), st.just(False)),
        st.tuples(st.just("trim"), st.just(""), st.integers(0, 5), st.just(False)),
    ),
    min_size=5,
    max_size=60,
)


class World:
    """A broker, a sender, one who joins, and everything that was ever published."""

    def __init__(self, ring: int, capture: tuple[str, ...], disk: Disk | None, room_bytes: int) -> None:
        self.disk = disk
        self.stage = Stage(
            CoreSettings(
                ring=RingSettings(messages=ring),
                log=LogSettings(capture=capture),
                outbox=OutboxSettings(messages=20),
            ),
            disk=disk,
        )
        self.sender = self.stage.client("s")
        self.joiners: list[tuple[str, Joiner]] = []
        self.heads: list[int] = []  # the newest offset when each joined
        self.published: list[tuple[str, int]] = []  # topic and sequence; the offset is the place
        self.ends = [0]  # where each run ended, for a log lets whole runs go
        self.room_bytes = room_bytes

    def publish(self, topic: str, count: int, has_end: bool) -> None:
        payloads = [f"{len(self.published) + number:05}".encode() for number in range(count)]
        ttl = 2.0 if has_end else 0.0
        published = self.sender.publish(topic, *payloads, ttl=ttl)
        assert published.run.offset == len(self.published) + 1
        self.published += [(topic, published.run.sequence + number) for number in range(count)]
        self.ends.append(len(self.published))

    def join(self, filter: str, number: int, is_last: bool) -> None:
        """Each join has a client of its own, which listens to something else as well."""
        joiner = Joiner(self.stage, f"j{len(self.joiners)}", room_bytes=self.room_bytes)
        joiner.client.subscribe(OTHER)
        history = self.stage.broker.history
        start: Cursor | int = number if is_last else history.cursor(max(history.head - 3 * number, 0))
        joiner.join(filter, start)
        self.joiners.append((filter, joiner))
        self.heads.append(len(self.published))

    async def act(self, move: Move) -> None:
        kind, name, number, flag = move
        if kind in ("publish", "other"):
            self.publish(name, number, flag)
        elif kind == "join" and len(self.joiners) < 6:
            self.join(name, number, flag)
        elif kind == "turn":
            self.stage.scheduler.turn()
        elif kind == "sleep":
            for _ in range(number):
                await asyncio.sleep(0)
        elif kind == "wait":
            self.stage.advance(float(number))
        elif kind in ("pause", "unpause"):
            for _, joiner in self.joiners:
                getattr(joiner.client, kind)()
        elif kind == "trim" and self.disk is not None:
            reach = self.stage.log.last_offset - number
            gone = self.disk.content.first_offset - 1
            self.disk.trim(max(end for end in self.ends if end <= max(reach, gone)))

    async def finish(self) -> None:
        """Let everyone catch up, and publish a little more."""
        for _ in range(1_000):
            self.stage.settle()
            for _, joiner in self.joiners:
                joiner.client.unpause()
            await asyncio.sleep(0)
            if not any(joiner.is_joining for _, joiner in self.joiners):
                break
        for topic in TOPICS:
            self.publish(topic, 2, False)
            self.stage.settle()
            for _, joiner in self.joiners:
                joiner.client.unpause()
        self.stage.settle()

    # What has to be

    def check(self) -> None:
        for (filter, joiner), head in zip(self.joiners, self.heads, strict=True):
            assert joiner.failures == []
            (statement,) = joiner.statements
            assert _offset_of(statement.after) <= head, "nothing is past that comes after the wish"
            self._check(filter, joiner, statement, joiner.places[0])

    def _check(self, filter: str, joiner: Joiner, statement: Statement, place: int) -> None:
        deliveries = joiner.client.connection.deliveries
        offsets = [self.published.index((each.topic, each.sequence)) + 1 for each in deliveries]
        mine = [offset for offset in offsets if self.published[offset - 1][0] != OTHER]
        after, until = _offset_of(statement.after), _offset_of(statement.next)
        past = [offset for offset in offsets[:place] if offset in mine]
        assert mine == sorted(set(mine)), "in one order, and nothing twice"
        assert all(after < offset <= until for offset in past), "the past comes before the statement"
        assert all(offset > until for offset in mine[len(past) :]), "and what is live behind it"
        assert statement.served == len(past)
        for index, (topic, sequence) in enumerate(self.published):
            offset = index + 1
            if offset > after and matches(filter, topic):
                is_got = offset in mine
                is_missing = is_told(statement, topic, sequence, offset) and offset <= until
                why = self.stage.why(topic, sequence, joiner.client.client_id)
                assert is_got or is_missing or why, f"{topic} {sequence} is lost silently"
                in_gap = any(gap.first <= offset <= gap.last for gap in statement.gaps)
                assert not (is_got and is_missing and not in_gap), f"{topic} {sequence} is there after all"


def _offset_of(cursor: Cursor | None) -> int:
    assert cursor is not None
    return cursor.positions[0].offset


def _run(
    ring: int, capture: tuple[str, ...], is_stuck: bool | None, room_bytes: int, journal: Sequence[Move]
) -> None:
    async def play() -> None:
        disk = None if is_stuck is None else Disk()
        world = World(ring, capture, disk, room_bytes)
        for move in journal:
            if disk is not None:
                disk.is_stuck = bool(is_stuck) and move[0] != "sync"
            await world.act(move)
            if disk is not None and move[0] == "sync":
                disk.sync()
        if disk is not None:
            disk.is_stuck = False
        await world.finish()
        world.check()

    asyncio.run(play())


@examples(50)
@given(
    ring=st.integers(0, 8),
    capture=st.sampled_from(CAPTURES),
    is_stuck=st.sampled_from([None, False, True]),
    room_bytes=st.sampled_from([30, 200, 1 << 30]),
    journal=MOVES,
)
def test_every_message_is_delivered_once_in_order_or_its_loss_is_told(
    ring: int, capture: tuple[str, ...], is_stuck: bool | None, room_bytes: int, journal: list[Move]
) -> None:
    _run(ring, capture, is_stuck, room_bytes, journal)
