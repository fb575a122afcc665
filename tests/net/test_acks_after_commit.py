"""Acknowledgements leave after their commit, in the order of publishes, and not while these are blocked."""

import gc
import weakref
from collections.abc import Callable
from random import Random

import pytest

from penstock.core.ports.log import Settled, Ticket
from penstock.net.acks_after_commit import OrderedAcks

FAILURE = OSError("no space left")


class Commits:
    """Commits that end when a test says so; without a ticket, the flush."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Ticket | None, Settled]] = []

    def when_committed(self, ticket: Ticket | None, callback: Settled) -> None:
        self.waiting.append((ticket, callback))

    def end(self, ticket: Ticket | None, failure: Exception | None = None) -> None:
        ended = [callback for each, callback in self.waiting if each == ticket]
        self.waiting = [each for each in self.waiting if each[0] != ticket]
        for callback in ended:
            callback(failure)

    def flush(self) -> None:
        self.end(None)


class Publisher:
    """Everything that one connection has written."""

    def __init__(self) -> None:
        self.commits = Commits()
        self.writes: list[list[str]] = []
        self.acks = OrderedAcks(self.commits.when_committed, self.writes.append, self.refuse)

    def refuse(self, item: str, failure: Exception) -> str:
        return f"{item}: {failure}"

    @property
    def written(self) -> list[str]:
        return [item for items in self.writes for item in items]


@pytest.fixture
def publisher() -> Publisher:
    return Publisher()


def test_item_waits_for_its_commit(publisher: Publisher) -> None:
    publisher.acks.add(1, "a")
    publisher.commits.flush()
    assert publisher.writes == []
    publisher.commits.end(1)
    assert publisher.writes == [["a"]]


def test_item_without_a_commit_waits_for_the_flush(publisher: Publisher) -> None:
    publisher.acks.add(None, "a")
    assert publisher.writes == []
    publisher.commits.flush()
    assert publisher.writes == [["a"]]


def test_items_of_one_commit_wait_once_and_are_written_together(publisher: Publisher) -> None:
    for item in "abc":
        publisher.acks.add(1, item)
    assert len(publisher.commits.waiting) == 1
    publisher.commits.end(1)
    assert publisher.writes == [["a", "b", "c"]]


def test_item_waits_for_those_before_it(publisher: Publisher) -> None:
    publisher.acks.add(1, "a")
    publisher.acks.add(None, "b")
    publisher.acks.add(2, "c")
    publisher.commits.flush()
    assert publisher.writes == []
    publisher.commits.end(1)
    publisher.commits.end(2)
    assert publisher.writes == [["a", "b"], ["c"]]


def test_item_behind_a_commit_waits_for_its_own_flush_too(publisher: Publisher) -> None:
    publisher.acks.add(1, "a")
    publisher.acks.add(None, "b")
    publisher.commits.end(1)
    assert publisher.writes == [["a"]]
    publisher.commits.flush()
    assert publisher.writes == [["a"], ["b"]]


def test_item_of_a_later_turn_does_not_join_a_settled_one(publisher: Publisher) -> None:
    publisher.acks.add(1, "a")
    publisher.acks.add(None, "b")
    publisher.commits.flush()
    publisher.acks.add(None, "c")
    publisher.commits.end(1)
    assert publisher.writes == [["a", "b"]]
    publisher.commits.flush()
    assert publisher.writes == [["a", "b"], ["c"]]


def test_failed_commit_in_the_middle_refuses_only_its_own_items(publisher: Publisher) -> None:
    publisher.acks.add(1, "a")
    publisher.acks.add(2, "b")
    publisher.acks.add(2, "c")
    publisher.acks.add(None, "d")
    publisher.acks.add(3, "e")
    publisher.commits.end(2, FAILURE)
    publisher.commits.flush()
    publisher.commits.end(3)
    assert publisher.writes == []  # the first is not committed yet
    publisher.commits.end(1)
    assert publisher.written == ["a", "b: no space left", "c: no space left", "d", "e"]


def test_publisher_that_is_blocked_while_it_commits_gets_its_items_when_it_is_unblocked(
    publisher: Publisher,
) -> None:
    publisher.acks.add(1, "a")
    publisher.acks.block()
    publisher.acks.block()
    publisher.commits.end(1)
    publisher.acks.add(2, "b")
    publisher.commits.end(2, FAILURE)
    publisher.acks.add(3, "c")
    assert publisher.writes == []
    publisher.acks.unblock()
    publisher.acks.unblock()
    assert publisher.writes == [["a", "b: no space left"]]  # not what is uncommitted
    publisher.commits.end(3)
    assert publisher.written == ["a", "b: no space left", "c"]


def test_write_that_blocks_and_unblocks_changes_no_order() -> None:
    commits = Commits()
    written: list[str] = []

    def write(items: list[str]) -> None:
        written.extend(items)
        acks.block()
        acks.add(None, f"after {items[-1]}")
        acks.unblock()

    acks = OrderedAcks(commits.when_committed, write, lambda item, failure: item)
    acks.add(1, "a")
    acks.add(1, "b")
    commits.end(1)
    assert written == ["a", "b"]
    commits.flush()
    assert written == ["a", "b", "after b"]


def test_close_drops_what_is_pending_or_withheld(publisher: Publisher) -> None:
    publisher.acks.block()
    publisher.acks.add(1, "a")
    publisher.acks.add(2, "b")
    publisher.acks.add(3, "c")
    publisher.commits.end(1)
    publisher.acks.close()
    publisher.acks.close()
    publisher.acks.unblock()
    publisher.commits.end(2)
    publisher.commits.end(3, FAILURE)
    assert publisher.writes == []


def test_nothing_waits_after_close(publisher: Publisher) -> None:
    publisher.acks.close()
    publisher.acks.add(1, "a")
    assert publisher.commits.waiting == []


def test_refusal_that_closes_stops_the_rest() -> None:
    commits = Commits()
    writes: list[list[str]] = []
    refused: list[str] = []

    def refuse(item: str, failure: Exception) -> str:
        refused.append(item)
        acks.close()
        return item

    acks = OrderedAcks(commits.when_committed, writes.append, refuse)
    acks.add(1, "a")
    acks.add(1, "b")
    acks.add(2, "c")
    commits.end(1, FAILURE)
    commits.end(2)
    assert refused == ["a"]
    assert writes == []


def test_connection_is_free_after_close_even_while_a_commit_is_pending() -> None:
    publisher = Publisher()
    commits = publisher.commits
    publisher.acks.add(1, "a")
    publisher.acks.close()
    reference = weakref.ref(publisher)
    gc.collect()
    gc.disable()
    try:
        del publisher
        assert reference() is None
    finally:
        gc.enable()
    commits.end(1)


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_events_keeps_the_order_of_items(seed: int) -> None:
    random, publisher = Random(seed), Publisher()
    ticket, added, failed = 1, 0, set[int]()
    tickets: list[Ticket | None] = []
    uncommitted: list[Ticket] = []

    def add() -> None:
        nonlocal ticket, added
        ticket += random.random() < 0.3
        mine = random.choice((None, ticket))
        if mine is not None and mine not in uncommitted:
            uncommitted.append(mine)
        publisher.acks.add(mine, str(added))
        tickets.append(mine)
        added += 1

    def commit() -> None:
        nonlocal ticket
        if uncommitted:
            ended = uncommitted.pop(0)
            ticket = max(ticket, ended + 1)
            failure = FAILURE if random.random() < 0.2 else None
            if failure is not None:
                failed.add(ended)
            publisher.commits.end(ended, failure)

    events: list[Callable[[], None]] = [
        add,
        add,
        commit,
        publisher.commits.flush,
        publisher.acks.block,
        publisher.acks.unblock,
    ]
    for _ in range(300):
        random.choice(events)()
    while uncommitted:
        commit()
    publisher.commits.flush()
    publisher.acks.unblock()
    expected = [f"{item}: no space left" if own in failed else str(item) for item, own in enumerate(tickets)]
    assert publisher.written == expected
