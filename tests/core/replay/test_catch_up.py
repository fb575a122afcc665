"""A filter's past and then what is live: one order, nothing twice, nothing left out, and all of it told."""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Sequence
from unittest.mock import Mock

import pytest

from penstock.common.cursor import Cursor, Position
from penstock.common.statement import Statement
from penstock.common.topics import matches
from penstock.core.access.access import OpenAccess
from penstock.core.access.identity import Identity
from penstock.core.broker import Arrival
from penstock.core.ports.connection import Frame
from penstock.core.ports.log import Log, Span, Wanted
from penstock.core.replay import reader
from penstock.core.replay.catch_up import Last
from penstock.core.runtime import background
from penstock.core.sessions.catch_up_slots import READERS
from penstock.core.sessions.session import Ending
from penstock.core.settings import CoreSettings, LogSettings, RingSettings, SessionSettings
from penstock.core.subscriptions.subscription import Options
from penstock.core.topics import activity
from penstock.errors import (
    InvalidCursor,
    InvalidFilter,
    InvalidRequest,
    NotAuthorized,
    QuotaExceeded,
    StorageUnavailable,
)
from penstock.model import Door, Policy, Reason
from penstock.runs import Run
from penstock.storage.memory import MemoryLog
from tests.core.replay.followers import Joiner, missing, numbers, publish
from tests.support.broker import Client, Stage
from tests.support.connection import MemoryConnection
from tests.support.disk import Disk
from tests.support.encodings import PlainEncoding, as_plain
from tests.support.waiting import TIMEOUT_S

MakeStage = Callable[[], tuple[Stage, Client, Joiner]]
KEEPS_ALL = LogSettings(capture=("#",))


def memory_stage(ring: int = 100) -> tuple[Stage, Client, Joiner]:
    stage = Stage(CoreSettings(ring=RingSettings(messages=ring)))
    return stage, stage.client("s"), Joiner(stage)


def disk_stage(ring: int = 100, disk: Disk | None = None) -> tuple[Stage, Client, Joiner]:
    stage = Stage(CoreSettings(ring=RingSettings(messages=ring), log=KEEPS_ALL), disk=disk or Disk())
    return stage, stage.client("s"), Joiner(stage)


# At once


def test_a_replay_from_rings_is_complete_before_join_returns() -> None:
    stage, sender, joiner = memory_stage()
    start = stage.broker.history.cursor()
    publish(sender, "a", numbers(1, 3))
    joiner.join("a", start)
    assert joiner.got == numbers(1, 3)
    (statement,) = joiner.statements
    assert (statement.after, statement.next, statement.served) == (start, stage.broker.history.cursor(), 3)
    assert statement.is_complete and statement.is_at_head
    assert joiner.places == [3]


def test_live_messages_follow_the_past_without_a_seam() -> None:
    stage, sender, joiner = memory_stage()
    start = stage.broker.history.cursor()
    publish(sender, "a", numbers(1, 3))  # this turn is not over yet
    joiner.join("a", start)
    publish(sender, "a", numbers(4, 5))
    stage.settle()
    assert joiner.got == numbers(1, 5)
    assert joiner.places == [3]


@pytest.mark.parametrize("how", ["deleted", "forgotten"])
def test_what_went_with_its_topic_is_a_gap(how: str) -> None:
    stage, sender, joiner = memory_stage(ring=0 if how == "forgotten" else 100)
    start = stage.broker.history.cursor()
    publish(sender, "t/a", numbers(1, 3))
    stage.settle()
    if how == "deleted":
        stage.broker.delete_topic("t/a")
    else:
        stage.broker.topics.forget_unused()
    joiner.join("t/#", start)
    (statement,) = joiner.statements
    assert [(gap.first, gap.last, gap.reason) for gap in statement.gaps] == [(1, 3, Reason.EVICTED)]
    assert not statement.is_complete


def test_an_empty_replay_is_told_of_as_well() -> None:
    stage, sender, joiner = memory_stage()
    publish(sender, "a", numbers(1, 3))
    joiner.join("a", stage.broker.history.cursor())
    assert [statement.served for statement in joiner.statements] == [0]
    publish(sender, "a", numbers(4, 4))
    stage.settle()
    assert joiner.got == numbers(4, 4)


def test_without_a_start_a_filter_is_live_and_nothing_is_told() -> None:
    stage, sender, joiner = memory_stage()
    publish(sender, "a", numbers(1, 3))
    joiner.join("a", None)
    publish(sender, "a", numbers(4, 4))
    stage.settle()
    assert (joiner.got, joiner.statements, joiner.begun) == (numbers(4, 4), [], [0])


def test_a_shared_filter_begins_before_what_its_group_is_owed() -> None:
    stage, sender, joiner = memory_stage()
    stage.client("other").subscribe("$share/g/a")
    stage.broker.pause(stage.broker.sessions["other"])
    publish(sender, "a", numbers(1, 2))
    stage.settle()
    joiner.join("$share/g/a", None)
    assert (joiner.begun, joiner.got) == ([0], numbers(1, 2))


def test_a_join_begins_before_its_first_message() -> None:
    _, sender, joiner = memory_stage()
    publish(sender, "a", numbers(1, 3))
    joiner.join("a", 2)
    assert (joiner.begun, joiner.got) == ([0], numbers(2, 3))


def test_rings_stand_for_a_log_on_disk_as_long_as_they_have_everything() -> None:
    disk = Disk()
    stage, sender, joiner = disk_stage(disk=disk)
    start = stage.broker.history.cursor()
    publish(sender, "a", numbers(1, 3))
    publish(sender, "b/c", numbers(4, 5))
    stage.settle()
    assert stage.log.last_offset == 5
    joiner.join("a", start)
    joiner.join("b/#", 1)
    assert joiner.got == [*numbers(1, 3), *numbers(5, 5)]
    assert [statement.is_complete for statement in joiner.statements] == [True, True]


# The last messages


@pytest.mark.parametrize("make", [memory_stage, disk_stage])
async def test_the_last_messages_of_a_filter_are_the_newest_of_all_its_topics(make: MakeStage) -> None:
    stage, sender, joiner = make()
    for number in range(1, 7):
        sender.publish("a/b" if number % 3 else "a/c", f"{number:03}".encode())
        sender.publish("b", b"xxx")
    stage.settle()
    joiner.join("a/+", 4)
    assert joiner.got == numbers(3, 6)
    assert joiner.statements[0].is_complete


@pytest.mark.parametrize("make", [memory_stage, disk_stage])
async def test_the_last_messages_may_begin_within_a_run(make: MakeStage) -> None:
    stage, sender, joiner = make()
    sender.publish("a", *numbers(1, 4))
    sender.publish("a", *numbers(5, 6))
    stage.settle()
    joiner.join("a", 3)
    assert joiner.got == numbers(4, 6)


def test_none_of_the_last_messages_is_a_statement_and_no_message() -> None:
    _, sender, joiner = memory_stage()
    publish(sender, "a", numbers(1, 3))
    joiner.join("a", 0)
    assert (joiner.got, [statement.served for statement in joiner.statements]) == ([], [0])


def test_if_there_are_fewer_it_is_told_whether_more_have_been_there() -> None:
    _, sender, joiner = memory_stage(ring=3)
    publish(sender, "a", numbers(1, 5))
    publish(sender, "b", numbers(1, 2))
    joiner.join("a", 4)
    joiner.join("b", 4)
    assert joiner.got == [*numbers(3, 5), *numbers(1, 2)]
    assert [missing(statement) for statement in joiner.statements] == [[("a", None, 2, "evicted")], []]


async def test_the_last_messages_that_rings_have_no_more_come_from_the_log() -> None:
    stage, sender, joiner = disk_stage(ring=3)
    publish(sender, "a", numbers(1, 40))
    publish(sender, "b", numbers(1, 3))
    stage.settle()
    joiner.join("a", 20)
    assert joiner.got == []
    await joiner.settle()
    assert joiner.got == numbers(21, 40)
    joiner.join("#", 20)
    await joiner.settle()
    assert joiner.got == [*numbers(21, 40), *numbers(24, 40), *numbers(1, 3)]


async def test_the_last_messages_are_looked_for_far_back() -> None:
    stage, sender, joiner = disk_stage(ring=3)
    publish(sender, "a/b", numbers(1, 5))
    sender.publish("c", *[b"xxx"] * 9_000)
    stage.settle()
    joiner.join("a/#", 4)
    await joiner.settle()
    assert joiner.got == numbers(2, 5)
    joiner.join("c", 5_000)
    await joiner.settle()
    assert [statement.served for statement in joiner.statements] == [4, 5_000]


async def test_the_last_messages_before_a_restart_are_found() -> None:
    disk = Disk()
    stage, sender, _ = disk_stage(disk=disk)
    publish(sender, "a", numbers(1, 5))
    stage.settle()
    disk.crash()
    stage, sender, joiner = disk_stage(disk=disk)
    publish(sender, "a", numbers(6, 6))
    joiner.join("a", 3)
    await joiner.settle()
    joiner.join("+", 4)
    await joiner.settle()
    assert joiner.got == [*numbers(4, 6), *numbers(3, 6)]


async def test_what_a_deleted_topic_left_in_the_log_is_for_cursors_and_none_of_the_last_ones() -> None:
    stage, sender, joiner = disk_stage()
    start = stage.broker.history.cursor()
    publish(sender, "a/b", numbers(1, 3))
    stage.settle()
    assert stage.broker.delete_topic("a/b")
    publish(sender, "a/c", numbers(4, 4))
    stage.settle()
    joiner.join("a/#", start)
    await joiner.settle()
    joiner.join("a/+", 2)
    await joiner.settle()
    assert joiner.got == [*numbers(1, 4), *numbers(4, 4)]
    assert joiner.statements[-1].is_complete


def test_expired_messages_are_none_of_the_last_ones() -> None:
    stage, sender, joiner = memory_stage()
    publish(sender, "a", numbers(1, 2))
    publish(sender, "a", numbers(3, 4), ttl=5.0)
    publish(sender, "a", numbers(5, 5))
    stage.clock.advance(5.0)
    joiner.join("a", 3)
    assert joiner.got == [*numbers(1, 2), *numbers(5, 5)]
    assert missing(joiner.statements[0]) == [("a", 3, 4, "expired")]


# Chunk by chunk


async def test_a_long_past_waits_for_a_socket_that_is_full() -> None:
    stage, sender, _ = disk_stage(ring=3)
    joiner = Joiner(stage, "slow", room_bytes=50_000)
    start = stage.broker.history.cursor()
    publish(sender, "a", [f"{number:04}".encode() * 1_000 for number in range(100)])
    stage.settle()
    joiner.join("a", start)
    for _ in range(20):
        await asyncio.sleep(0)
        stage.settle()
    assert 0 < joiner.count < 50  # one chunk, and no more
    async with asyncio.timeout(TIMEOUT_S):
        while joiner.is_joining:
            joiner.client.unpause()
            await asyncio.sleep(0)
    publish(sender, "a", [b"live"])
    joiner.client.unpause()
    stage.settle()
    assert [payload[:4] for payload in joiner.got] == [f"{number:04}".encode() for number in range(100)] + [
        b"live"
    ]
    assert (joiner.places, joiner.statements[0].served) == ([100], 100)


async def test_a_short_turn_for_each_when_the_socket_takes_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background, "WORK_S", 0.0)
    stage, sender, joiner = memory_stage(ring=1_000)
    start = stage.broker.history.cursor()
    publish(sender, "a", [bytes([65 + number % 26]) * 1_000 for number in range(200)])
    publish(sender, "b", [bytes([65 + number % 26]) * 1_000 for number in range(200)])
    joiner.join("#", start)
    assert 0 < joiner.count < 100  # others have their turn
    publish(sender, "b", [b"live"])
    await joiner.settle()
    assert joiner.count == 401
    assert joiner.statements[0].served == 401


async def test_many_who_come_back_at_once_have_their_turns_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background, "WORK_S", 0.0)
    stage, sender, _ = memory_stage()
    start = stage.broker.history.cursor()
    publish(sender, "a", numbers(1, 3))
    stage.settle()
    joiners = [Joiner(stage, f"j{number}") for number in range(5)]
    for joiner in joiners:
        joiner.join("#", start)
    assert [joiner.count for joiner in joiners] == [3, 0, 0, 0, 0]
    joiners[1].client.disconnect()
    publish(sender, "a", numbers(4, 4))
    stage.settle()
    assert [joiner.got for joiner in joiners] == [numbers(1, 4), [], *[numbers(1, 4)] * 3]
    assert [len(joiner.statements) for joiner in joiners] == [1, 0, 1, 1, 1]


@pytest.mark.parametrize("make", [memory_stage, disk_stage])
async def test_who_was_away_for_a_moment_looks_at_topics_that_were_used_since_and_no_others(
    make: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, sender, joiner = make()
    for number in range(2_000):
        sender.publish(f"t/{number}", b"x")
    stage.settle()
    start = stage.broker.history.cursor()
    publish(sender, "t/7", numbers(1, 2))
    publish(sender, "new", numbers(3, 3))
    stage.settle()
    asked: list[str] = []

    def note(filter: str, topic: str) -> bool:
        asked.append(topic)
        return matches(filter, topic)

    monkeypatch.setattr(reader, "matches", note)
    finding = Mock(wraps=bisect_left)  # each search of recent topics ends with one
    monkeypatch.setattr(activity, "bisect_left", finding)
    joiner.join("#", start)
    assert joiner.got == numbers(1, 3)
    assert set(asked) == {"t/7", "new"}
    finding.assert_called_once()  # those found are looked at, and not looked for again


async def test_other_filters_go_on_while_one_is_joined() -> None:
    stage, sender, joiner = disk_stage(ring=3)
    start = stage.broker.history.cursor()
    publish(sender, "a", numbers(1, 30))
    stage.settle()
    joiner.client.subscribe("b")
    joiner.join("a", start)
    sender.publish("b", b"xxx")
    stage.settle()
    assert (joiner.got, joiner.is_joining) == ([b"xxx"], True)
    await joiner.settle()
    assert joiner.got == [b"xxx", *numbers(1, 30)]


async def test_what_another_filter_matches_comes_by_it_before_it_comes_by_the_join() -> None:
    stage, sender, joiner = memory_stage()
    start = stage.broker.history.cursor()
    joiner.client.subscribe("a/b")
    publish(sender, "a/b", numbers(1, 2))  # this turn is not over yet
    joiner.join("a/#", start)
    assert joiner.got == numbers(1, 2) * 2
    assert joiner.places == [4]
    publish(sender, "a/b", numbers(3, 3))
    stage.settle()
    assert joiner.got[4:] == numbers(3, 3)


async def test_what_was_published_in_this_turn_comes_by_another_filter_first() -> None:
    stage, sender, joiner = memory_stage()
    start = stage.broker.history.cursor()
    joiner.client.subscribe("a/b", identifier=7)
    joiner.join("a/#", start)
    joiner.client.unsubscribe("a/#")
    publish(sender, "a/b", numbers(1, 1))  # this turn is not over yet
    joiner.join("a/#", start)
    assert [delivered.identifiers for delivered in joiner.client.connection.deliveries] == [(7,), ()]


async def test_at_qos_2_the_statement_waits_for_the_commit_that_the_last_message_waits_for() -> None:
    disk = Disk()
    stage, sender, joiner = disk_stage(disk=disk)
    start = stage.broker.history.cursor()
    sender.publish("a", b"001", qos=2)
    disk.is_stuck = True
    joiner.join("a", start, encoding=PlainEncoding(qos=2))
    stage.settle()
    assert (joiner.got, joiner.statements) == ([], [])
    disk.is_stuck = False
    disk.sync()
    await joiner.settle()
    assert (joiner.got, joiner.places) == ([b"001"], [1])


async def test_what_expires_while_it_waits_for_the_socket_is_not_sent() -> None:
    stage, sender, joiner = memory_stage()
    start = stage.broker.history.cursor()
    publish(sender, "a", numbers(1, 2), ttl=5.0)
    publish(sender, "a", numbers(3, 3))
    joiner.client.pause()
    joiner.join("a", start)
    stage.advance(6.0)
    joiner.client.unpause()
    assert joiner.got == numbers(3, 3)
    (statement,) = joiner.statements
    assert (statement.served, missing(statement)) == (1, [("a", 1, 2, "expired")])


async def test_what_was_read_and_expires_before_it_is_sent_is_told_as_missing() -> None:
    stage, sender, joiner = disk_stage(ring=1)
    start = stage.broker.history.cursor()
    publish(sender, "a", numbers(1, 2), ttl=5.0)
    publish(sender, "a", numbers(3, 3))
    stage.settle()
    joiner.join("a", start)
    joiner.client.pause()
    await asyncio.sleep(0)  # it is read now
    await asyncio.sleep(0)
    stage.advance(6.0)
    assert joiner.is_joining
    joiner.client.unpause()
    await joiner.settle()
    assert joiner.got == numbers(3, 3)
    (statement,) = joiner.statements
    assert (statement.served, missing(statement)) == (1, [("a", 1, 2, "expired")])


class ReadCounter:
    """Counts how many read a log at the same time."""

    def __init__(self, log: Log) -> None:
        self._read = log.read
        self._now = self.most = 0
        log.read = self._count  # type: ignore[method-assign]

    async def _count(self, after: int, limit_bytes: int, wanted: Wanted | None = None) -> Span:
        self._now += 1
        self.most = max(self.most, self._now)
        await asyncio.sleep(0)
        self._now -= 1
        return await self._read(after, limit_bytes, wanted)


async def test_a_session_reads_few_pasts_at_a_time_and_comes_to_all_of_them() -> None:
    stage, sender, joiner = disk_stage(ring=1)
    start = stage.broker.history.cursor()
    for number in range(10):
        publish(sender, f"t{number}", [b"x%02d" % number, b"y%02d" % number])
    stage.settle()
    reading = ReadCounter(stage.log)
    for number in range(10):
        joiner.join(f"t{number}", start)
    await joiner.settle()
    assert reading.most == READERS
    assert sorted(joiner.got) == sorted(
        b"%c%02d" % (letter, number) for number in range(10) for letter in b"xy"
    )
    assert len(joiner.statements) == 10
    publish(sender, "t9", [b"z"])
    stage.settle()
    assert joiner.got[-1] == b"z"


async def test_messages_at_qos_1_wait_for_their_window_and_the_statement_for_them() -> None:
    stage = Stage(CoreSettings(ring=RingSettings(messages=100)))
    sender, joiner = stage.client("s"), Joiner(stage)
    joiner.client.session.window_limit = 2
    start = stage.broker.history.cursor()
    for payload in numbers(1, 5):
        sender.publish("a", payload, qos=1)
    joiner.join("a", start, encoding=PlainEncoding(qos=1))
    sender.publish("a", b"006", qos=1)
    assert joiner.got == numbers(1, 2)
    got: list[bytes] = []
    while joiner.is_joining or joiner.client.session.outbox:
        got += joiner.client.take_and_acknowledge()
        stage.settle()
    assert got + joiner.client.take_and_acknowledge() == numbers(1, 6)
    assert joiner.statements[0].served == 6


async def test_who_does_not_want_its_own_messages_does_not_get_them_from_the_past() -> None:
    stage, sender, joiner = memory_stage()
    start = stage.broker.history.cursor()
    sender.publish("a", b"theirs")
    joiner.client.publish("a", b"mine")
    joiner.join("a", start, encoding=PlainEncoding(no_local=True))
    assert (joiner.got, joiner.statements[0].served) == ([b"theirs"], 1)


# Several filters at once


@pytest.mark.parametrize("ring", [1, 100])
async def test_several_filters_have_one_past_and_one_statement(ring: int) -> None:
    stage, sender, joiner = disk_stage(ring)
    start = stage.broker.history.cursor()
    for number, topic in enumerate(("a/b", "c", "a/c", "d", "c", "a/b"), start=1):
        sender.publish(topic, b"%d" % number)
    stage.settle()
    joiner.join(("a/#", "c", "a/b", "c"), start)
    await joiner.settle()
    for topic in ("d", "a/b", "c"):
        sender.publish(topic, topic.encode())
    stage.settle()
    assert joiner.got == [b"1", b"2", b"3", b"5", b"6", b"a/b", b"c"]
    assert [statement.served for statement in joiner.statements] == [5]
    joiner.join(("a/#", "d"), 3)
    await joiner.settle()
    assert joiner.got[7:] == [b"6", b"d", b"a/b"]


async def test_several_filters_are_all_right_or_nothing_happens() -> None:
    stage = Stage(CoreSettings(sessions=SessionSettings(max_subscriptions=2)))
    joiner = Joiner(stage)
    start = stage.broker.history.cursor()
    for filters in (("a", "b", "c"), (), ("a", "#/a"), ("a", "$share/g/b")):
        with pytest.raises((QuotaExceeded, InvalidRequest, InvalidFilter)):
            joiner.join(filters, start)
    assert (joiner.client.session.subscriptions, joiner.is_joining) == ({}, False)
    joiner.join(("a", "b"), start)
    assert list(joiner.client.session.subscriptions) == ["a", "b"]
    joiner.join(("b", "a"), None)
    assert list(joiner.client.session.subscriptions) == ["a", "b"]


async def test_one_of_several_filters_may_be_left_on_the_way() -> None:
    stage, sender, joiner = disk_stage(ring=1)
    start = stage.broker.history.cursor()
    publish(sender, "a", numbers(1, 3))
    publish(sender, "b", numbers(4, 6))
    stage.settle()
    joiner.join(("a", "b"), start)
    assert joiner.client.unsubscribe("a")
    await joiner.settle()
    publish(sender, "a", numbers(7, 7))
    publish(sender, "b", numbers(8, 8))
    stage.settle()
    assert joiner.got == [*numbers(4, 6), *numbers(8, 8)]
    assert [statement.served for statement in joiner.statements] == [3]


# Replaced, left, gone


async def test_joining_a_filter_again_replaces_it() -> None:
    stage, sender, joiner = memory_stage()
    start = stage.broker.history.cursor()
    publish(sender, "a", numbers(1, 3))
    joiner.client.subscribe("a")
    joiner.join("a", start)
    publish(sender, "a", numbers(4, 4))
    stage.settle()
    assert joiner.got == numbers(1, 4)
    joiner.join("a", None)
    publish(sender, "a", numbers(5, 5))
    stage.settle()
    assert joiner.got == numbers(1, 5)


async def test_a_filter_that_was_live_waits_for_its_past() -> None:
    stage, sender, joiner = disk_stage(ring=1)
    start = stage.broker.history.cursor()
    publish(sender, "a", numbers(1, 3))
    stage.settle()
    joiner.client.subscribe("a")
    joiner.join("a", start)
    publish(sender, "a", numbers(4, 4))
    stage.settle()
    assert joiner.got == []
    await joiner.settle()
    assert joiner.got == numbers(1, 4)


def test_who_is_not_told_yet_that_it_is_connected_gets_its_past_after_that() -> None:
    stage, sender, _ = memory_stage()
    publish(sender, "a", numbers(1, 3))
    connection, statements = MemoryConnection(), list[Statement]()
    arrival = Arrival(Identity(None, "c"), Door.WEB)
    session, _ = stage.broker.connect(arrival, connection, as_plain)
    stage.broker.catch_up(
        session,
        "a",
        Options(),
        PlainEncoding(),
        policy=Policy.DISCONNECT,
        start=Last(2),
        on_complete=statements.append,
        on_failed=pytest.fail,  # type: ignore[arg-type]
    )
    assert connection.data == b""
    stage.broker.resume(session)
    assert (connection.take_payloads(), len(statements)) == (numbers(2, 3), 1)


@pytest.mark.parametrize("again", ["join", "subscribe", "live"])
async def test_a_join_that_is_replaced_goes_no_further(again: str) -> None:
    stage, sender, joiner = disk_stage(ring=1)
    start = stage.broker.history.cursor()
    publish(sender, "a", numbers(1, 3))
    stage.settle()
    joiner.join("a", start)
    if again == "join":
        joiner.join("a", start)
    elif again == "subscribe":
        joiner.client.subscribe("a")
    else:
        joiner.join("a", None)
    await joiner.settle()
    publish(sender, "a", numbers(4, 4))
    stage.settle()
    await asyncio.sleep(0)
    assert joiner.got == (numbers(1, 4) if again == "join" else numbers(4, 4))
    assert len(joiner.statements) == (again == "join")
    assert joiner.failures == []


async def test_a_filter_that_is_left_while_it_is_joined_is_left() -> None:
    stage, sender, joiner = disk_stage(ring=1)
    start = stage.broker.history.cursor()
    publish(sender, "a", numbers(1, 3))
    stage.settle()
    joiner.join("a", start)
    assert joiner.client.unsubscribe("a")
    assert not joiner.client.unsubscribe("a")
    await joiner.settle()
    publish(sender, "a", numbers(4, 4))
    stage.settle()
    assert (joiner.got, joiner.statements, joiner.failures) == ([], [], [])


@pytest.mark.parametrize("is_read", [True, False])
async def test_who_goes_takes_its_joins_along(is_read: bool) -> None:
    stage, sender, joiner = disk_stage(ring=1)
    start = stage.broker.history.cursor()
    publish(sender, "a", numbers(1, 3))
    stage.settle()
    for filter in ("a", "+", "#", "a/#", "+/#"):
        joiner.join(filter, start)
    if is_read:
        joiner.client.pause()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    joiner.client.drop()
    assert not joiner.is_joining
    stage.settle()
    await asyncio.sleep(0)
    assert (joiner.got, joiner.statements, joiner.failures) == ([], [], [])
    assert not stage.node.router.match("a")


async def test_a_server_that_closes_ends_joins() -> None:
    stage, sender, joiner = disk_stage(ring=1)
    start = stage.broker.history.cursor()
    publish(sender, "a", numbers(1, 3))
    stage.settle()
    joiner.join("a", start)
    stage.broker.close()
    assert (joiner.client.connection.closed, joiner.is_joining) == (Ending.SHUTTING_DOWN, False)


# Refused


def test_bad_wishes_are_refused_and_change_nothing() -> None:
    stage = Stage(CoreSettings(sessions=SessionSettings(max_subscriptions=1)))
    joiner = Joiner(stage)
    joiner.client.subscribe("a")
    ahead = Cursor((Position(stage.log.log_id, 1, 99),))
    foreign = Cursor((Position("ff" * 8, 1, 1),))
    for filter, start, error in (
        ("a", ahead, InvalidCursor),
        ("a", foreign, InvalidCursor),
        ("a", -1, InvalidRequest),
        ("a", 100_001, InvalidRequest),
        ("a/#/b", 1, InvalidFilter),
        ("b", 1, QuotaExceeded),
    ):
        with pytest.raises(error):
            joiner.join(filter, start)
    joiner.client.publish("a", b"x")
    stage.settle()
    assert (joiner.got, joiner.begun, joiner.is_joining) == ([b"x"], [], False)


def test_a_shared_filter_has_no_past() -> None:
    stage, _, joiner = memory_stage()
    with pytest.raises(InvalidRequest, match="shared"):
        joiner.join("$share/g/a", stage.broker.history.cursor())
    joiner.join("$share/g/a", None)
    joiner.client.publish("a", b"x")
    stage.settle()
    assert joiner.got == [b"x"]


async def test_joins_count_among_the_subscriptions_of_a_session() -> None:
    settings = CoreSettings(
        sessions=SessionSettings(max_subscriptions=2), ring=RingSettings(messages=1), log=KEEPS_ALL
    )
    stage = Stage(settings, disk=Disk())
    sender, joiner = stage.client("s"), Joiner(stage)
    start = stage.broker.history.cursor()
    publish(sender, "a", numbers(1, 3))
    stage.settle()
    joiner.join("a", start)
    joiner.join("b", None)
    for start_of in (start, None):
        with pytest.raises(QuotaExceeded):
            joiner.join("c", start_of)
    joiner.join("a", start)  # replaces
    await joiner.settle()
    assert (joiner.got, joiner.failures) == (numbers(1, 3), [])


# Rights and failures


class Rules(OpenAccess):
    """Everything is allowed but some filters."""

    def __init__(self) -> None:
        self.forbidden: set[str] = set()

    def may_subscribe(self, identity: Identity, filter: str) -> bool:
        return filter not in self.forbidden


async def test_rights_that_are_taken_away_end_a_join() -> None:
    rules = Rules()
    stage = Stage(CoreSettings(ring=RingSettings(messages=1), log=KEEPS_ALL), disk=Disk(), access=rules)
    sender, joiner = stage.client("s"), Joiner(stage)
    start = stage.broker.history.cursor()
    publish(sender, "a", numbers(1, 3))
    publish(sender, "b", numbers(4, 6))
    stage.settle()
    joiner.join("a", start)
    joiner.join("b", start)
    rules.forbidden.add("a")
    stage.broker.recheck_rights()
    assert [type(error) for error in joiner.failures] == [NotAuthorized]
    await joiner.settle()
    assert joiner.got == numbers(4, 6)
    with pytest.raises(NotAuthorized):
        joiner.join("a", start)


@pytest.mark.parametrize("error", [StorageUnavailable("not now"), OSError("the disk is gone")])
async def test_a_log_that_cannot_be_read_ends_a_join(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, sender, joiner = disk_stage(ring=1)
    start = stage.broker.history.cursor()
    publish(sender, "a", numbers(1, 3))
    stage.settle()

    async def read(*_: object) -> None:
        raise error

    monkeypatch.setattr(stage.log, "read", read)
    joiner.join("a", start)
    await joiner.settle()
    (failure,) = joiner.failures
    assert isinstance(failure, StorageUnavailable) and str(error) in str(failure)
    assert joiner.statements == []
    joiner.join("a", None)  # it may try again
    publish(sender, "a", numbers(4, 4))
    stage.settle()
    assert joiner.got == numbers(4, 4)


class BrokenForm(PlainEncoding, frozen=True):
    """Cannot be encoded."""

    def encode(self, runs: Sequence[Run], now: float) -> bytes:
        raise ZeroDivisionError

    def frames(self, runs: Sequence[Run], now: float, *, again: bool = False) -> list[Frame]:
        raise ZeroDivisionError


@pytest.mark.parametrize(("make", "ring"), [(memory_stage, 100), (disk_stage, 1)], ids=["at once", "read"])
async def test_a_mistake_of_ours_ends_a_join_and_nobody_elses(
    make: Callable[[int], tuple[Stage, Client, Joiner]], ring: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "WORK_S", 0.0)
    stage, sender, joiner = make(ring)
    start = stage.broker.history.cursor()
    publish(sender, "a", numbers(1, 3))
    stage.settle()
    others = [Joiner(stage, name) for name in ("before", "after")]
    others[0].join("#", start)
    joiner.join("#", start, encoding=BrokenForm())
    others[1].join("#", start)
    for each in (joiner, *others):
        await each.settle()
    assert [failure.code for failure in joiner.failures] == ["internal"]
    assert [other.got for other in others] == [numbers(1, 3)] * 2


async def test_a_log_in_memory_that_has_lost_its_oldest_says_so() -> None:
    settings = CoreSettings(ring=RingSettings(messages=1), log=KEEPS_ALL)
    stage = Stage(settings, log=MemoryLog(3 * 259))
    sender, joiner = stage.client("s"), Joiner(stage)
    start = stage.broker.history.cursor()
    publish(sender, "a", numbers(1, 5))
    stage.settle()  # into the log
    joiner.join("a", start)
    await joiner.settle()
    assert joiner.got == numbers(3, 5)
    (statement,) = joiner.statements
    assert [(gap.first, gap.last, str(gap.reason)) for gap in statement.gaps] == [(1, 2, "retention")]


def test_the_policy_of_a_join_is_that_of_its_subscription() -> None:
    _, _, joiner = memory_stage()
    joiner.join("a", Last(1))
    assert joiner.client.session.subscriptions["a"].policy is Policy.DROP_NEWEST
