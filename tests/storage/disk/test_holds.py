"""Retention holds: keep unread messages, and lapse without renewal."""

from threading import Thread
from typing import Any

import pytest
from msgspec import msgpack

from penstock.core.ports.archive import Hold
from penstock.core.ports.turn import Sequencer
from penstock.core.settings import LogSettings
from penstock.errors import (
    InvalidCursor,
    InvalidHold,
    NotAuthorized,
    PenstockError,
    QuotaExceeded,
    UnknownHold,
)
from penstock.storage.disk.holds import HOLDS, LONGEST_NAME, HoldRecord, Holds
from penstock.storage.disk.pieces.index import Index
from penstock.storage.memory import MemoryStateStore
from tests.support.clock import ManualClock

HOUR_S = 3600.0
LONGEST_LAPSE_S = LogSettings().max_hold_lapse_s


class Desk:
    """Holds with all they need, which can be left and entered again as by another process."""

    def __init__(self, first_offset: int = 1, **settings: Any) -> None:
        self.clock = ManualClock()
        self.sequencer = Sequencer(0)
        self.state = MemoryStateStore(self.sequencer)
        self.index = Index(first_offset=first_offset)
        self.settings = LogSettings(**settings)
        self.restart()

    def restart(self) -> None:
        self.holds = Holds(self.state, self.sequencer, self.clock, self.index, self.settings)

    def create(self, name: str = "lake", offset: int = 10, lapse_s: float = 60.0, owner: str = "ann") -> Hold:
        return self.holds.create(name, owner, offset, lapse_s)

    def names(self) -> list[str]:
        return [hold.name for hold in self.holds.listing()]

    def stored(self) -> dict[str, HoldRecord]:
        records = dict(self.state.scan(HOLDS))
        return {name: record for name, record in records.items() if isinstance(record, HoldRecord)}


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_without_holds_nothing_is_kept(desk: Desk) -> None:
    assert desk.holds.lowest() is None
    assert desk.holds.listing() == []


def test_the_lowest_hold_counts(desk: Desk) -> None:
    desk.create("b", 20)
    desk.create("a", 10)
    desk.create("c", 30, owner="bob")
    assert desk.holds.lowest() == 10
    assert [(hold.name, hold.owner, hold.offset) for hold in desk.holds.listing()] == [
        ("a", "ann", 10),
        ("b", "ann", 20),
        ("c", "bob", 30),
    ]


def test_a_hold_tells_when_it_lapses(desk: Desk) -> None:
    lapses_at = desk.clock.wall_us() + 60_000_000
    assert desk.create() == Hold("lake", "ann", 10, 60.0, lapses_at)
    desk.clock.advance(20)
    assert desk.holds.listing() == [Hold("lake", "ann", 10, 60.0, lapses_at)]


def test_a_hold_lapses_at_its_time_and_not_before(desk: Desk) -> None:
    desk.create(lapse_s=60)
    desk.create("other", 50, lapse_s=600)
    desk.clock.advance(59)
    assert desk.holds.lowest() == 10
    desk.clock.advance(1)
    assert desk.holds.lowest() == 50
    assert desk.names() == ["other"]


def test_renewing_lets_it_last_its_whole_time_again(desk: Desk) -> None:
    desk.create(lapse_s=60)
    for _ in range(5):
        desk.clock.advance(59)
        assert desk.holds.renew("lake", "ann").lapses_at == desk.clock.wall_us() + 60_000_000
    assert desk.holds.lowest() == 10


def test_moving_changes_what_is_kept_and_renews(desk: Desk) -> None:
    desk.create(lapse_s=60)
    desk.clock.advance(59)
    assert desk.holds.move("lake", "ann", 25).offset == 25
    desk.clock.advance(59)
    assert desk.holds.lowest() == 25


def test_a_hold_can_be_moved_back_to_what_is_still_there() -> None:
    desk = Desk(first_offset=8)
    desk.create(offset=20)
    assert desk.holds.move("lake", "ann", 7).offset == 7


def test_a_released_hold_keeps_nothing(desk: Desk) -> None:
    desk.create()
    desk.holds.release("lake", "ann")
    assert desk.holds.lowest() is None
    assert desk.stored() == {}
    with pytest.raises(UnknownHold):
        desk.holds.renew("lake", "ann")


def test_its_owner_may_make_a_hold_again_elsewhere(desk: Desk) -> None:
    desk.create(offset=10, lapse_s=60)
    desk.create(offset=5, lapse_s=10)
    assert [(hold.offset, hold.lapse_s) for hold in desk.holds.listing()] == [(5, 10)]


def test_only_the_owner_may_change_a_hold(desk: Desk) -> None:
    desk.create()
    with pytest.raises(NotAuthorized):
        desk.create(owner="bob", offset=30)
    with pytest.raises(NotAuthorized):
        desk.holds.renew("lake", "bob")
    with pytest.raises(NotAuthorized):
        desk.holds.move("lake", "bob", 30)
    with pytest.raises(NotAuthorized):
        desk.holds.release("lake", "bob")
    assert [(hold.owner, hold.offset) for hold in desk.holds.listing()] == [("ann", 10)]


def test_a_name_that_has_lapsed_is_free_for_anyone(desk: Desk) -> None:
    desk.create(lapse_s=60)
    desk.clock.advance(60)
    assert desk.create(owner="bob", offset=30).owner == "bob"
    assert desk.holds.lowest() == 30


@pytest.mark.parametrize("has_lapsed", [False, True])
def test_an_unknown_or_lapsed_hold_raises(desk: Desk, has_lapsed: bool) -> None:
    if has_lapsed:
        desk.create(lapse_s=1)
        desk.clock.advance(1)
    with pytest.raises(UnknownHold):
        desk.holds.renew("lake", "ann")
    with pytest.raises(UnknownHold):
        desk.holds.move("lake", "ann", 30)
    with pytest.raises(UnknownHold):
        desk.holds.release("lake", "ann")


def test_what_has_left_the_log_cannot_be_held() -> None:
    desk = Desk(first_offset=100)
    with pytest.raises(InvalidCursor):
        desk.create(offset=98)
    desk.create(offset=99)  # the next one is the first there is
    with pytest.raises(InvalidCursor):
        desk.holds.move("lake", "ann", 98)
    assert desk.holds.lowest() == 99


def test_there_are_only_so_many_holds() -> None:
    desk = Desk(max_holds=2)
    desk.create("a", lapse_s=60)
    desk.create("b", lapse_s=600)
    with pytest.raises(QuotaExceeded):
        desk.create("c")
    desk.create("a", 20, lapse_s=60)  # it is there already
    desk.clock.advance(60)
    desk.create("c")
    assert desk.names() == ["b", "c"]
    assert [hold.name for hold in desk.holds.drop_lapsed()] == ["a"]
    assert set(desk.stored()) == {"b", "c"}


def test_a_refused_hold_changes_nothing() -> None:
    desk = Desk(max_holds_per_owner=1)
    desk.create("lapses", owner="bob", lapse_s=60)
    desk.create("stays", owner="ann", lapse_s=600)
    desk.sequencer.end_turn(is_urgent=True)
    desk.clock.advance(60)
    with pytest.raises(QuotaExceeded):
        desk.create("more", owner="ann")
    assert desk.sequencer.turn.is_empty  # so that no commit waits for its end


def test_one_owner_cannot_take_all_holds() -> None:
    desk = Desk(max_holds=9, max_holds_per_owner=2)
    desk.create("a", lapse_s=60)
    desk.create("b", lapse_s=600)
    with pytest.raises(QuotaExceeded):
        desk.create("c")
    desk.create("a", 20, lapse_s=60)  # it is there already
    desk.create("d", owner="bob")
    desk.clock.advance(60)
    desk.create("c")
    assert desk.names() == ["b", "c"]


def test_without_an_owner_any_hold_can_be_released(desk: Desk) -> None:
    desk.create("lake")
    desk.holds.release("lake", None)
    assert desk.names() == []
    with pytest.raises(UnknownHold):
        desk.holds.release("lake", None)


def test_a_hold_remembers_what_its_owner_wants_to_read(desk: Desk) -> None:
    desk.holds.create("lake", "ann", 10, 60.0, ("plant/#",))
    desk.holds.renew("lake", "ann")
    desk.holds.move("lake", "ann", 20)
    desk.restart()
    assert desk.holds.find("lake", "ann").filters == ("plant/#",)
    with pytest.raises(NotAuthorized):
        desk.holds.find("lake", "bob")


def test_a_hold_that_was_stored_before_it_had_filters_is_one_for_everything() -> None:
    data = msgpack.encode(["ann", 10, 60.0, 0])
    assert msgpack.decode(data, type=HoldRecord).filters == ()


def test_a_hold_that_may_not_last_as_long_any_more_lasts_shorter_once_it_is_renewed() -> None:
    desk = Desk()
    desk.create(lapse_s=HOUR_S)
    desk.settings = LogSettings(max_hold_lapse_s=60)
    desk.restart()
    assert desk.holds.renew("lake", "ann").lapse_s == 60


@pytest.mark.parametrize("name", ["", "x" * (LONGEST_NAME + 1), "a\nb", "a\0b", "\ud800"])
def test_a_name_out_of_bounds_is_refused(desk: Desk, name: str) -> None:
    with pytest.raises(InvalidHold):
        desk.create(name)
    assert desk.stored() == {}


@pytest.mark.parametrize("name", ["x", "x" * LONGEST_NAME, "a b/c", "höhe"])
def test_a_name_within_bounds_is_taken(desk: Desk, name: str) -> None:
    desk.create(name)
    assert desk.names() == [name]


@pytest.mark.parametrize("lapse_s", [0.0, 0.999, -5.0, LONGEST_LAPSE_S + 1, float("nan"), float("inf")])
def test_a_lapse_time_out_of_bounds_is_refused(desk: Desk, lapse_s: float) -> None:
    with pytest.raises(InvalidHold):
        desk.create(lapse_s=lapse_s)


@pytest.mark.parametrize("lapse_s", [1.0, LONGEST_LAPSE_S])
def test_a_lapse_time_within_bounds_is_taken(desk: Desk, lapse_s: float) -> None:
    assert desk.create(lapse_s=lapse_s).lapse_s == lapse_s


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S, 1e9])
def test_setting_the_clock_neither_ends_a_hold_nor_prolongs_it(desk: Desk, jump_s: float) -> None:
    made = desk.create(lapse_s=60)
    desk.clock.jump(jump_s)
    assert desk.holds.lowest() == 10
    assert desk.holds.drop_lapsed() == []
    assert desk.holds.listing() == [made]
    desk.clock.advance(60)
    assert desk.holds.lowest() is None


def test_holds_outlive_a_restart_with_the_time_they_have_left(desk: Desk) -> None:
    desk.create("short", 10, lapse_s=60)
    desk.create("long", 20, lapse_s=600)
    desk.clock.advance(40)
    before = desk.holds.listing()
    desk.restart()
    assert desk.holds.listing() == before
    assert desk.holds.lowest() == 10
    desk.clock.advance(20)
    assert desk.holds.lowest() == 20


def test_a_moved_hold_is_where_it_was_moved_after_a_restart(desk: Desk) -> None:
    desk.create(offset=10, lapse_s=60)
    desk.clock.advance(40)
    desk.holds.move("lake", "ann", 30)
    desk.restart()
    desk.clock.advance(59)
    assert desk.holds.lowest() == 30


def test_a_hold_that_lapsed_while_the_server_was_down_is_gone(desk: Desk) -> None:
    desk.create(lapse_s=60)
    desk.clock.advance(61)
    desk.restart()
    assert desk.holds.lowest() is None
    assert [hold.name for hold in desk.holds.drop_lapsed()] == ["lake"]


def test_a_clock_that_was_set_back_between_starts_gives_no_more_than_the_whole_time(desk: Desk) -> None:
    desk.create(lapse_s=60)
    desk.clock.jump(-HOUR_S)
    desk.restart()
    assert desk.holds.listing()[0].lapses_at == desk.clock.wall_us() + 60_000_000
    desk.clock.advance(59)
    assert desk.holds.lowest() == 10
    desk.clock.advance(1)
    assert desk.holds.lowest() is None


def test_a_stored_hold_comes_back_as_it_was(desk: Desk) -> None:
    desk.create("höhe", 2**40, lapse_s=61.5, owner="änn")
    (record,) = desk.stored().values()
    assert msgpack.decode(msgpack.encode(record), type=HoldRecord) == record


def test_lapsed_holds_are_returned_once_and_removed(desk: Desk) -> None:
    desk.create("a", lapse_s=60)
    desk.create("b", lapse_s=600)
    desk.clock.advance(60)
    assert [hold.name for hold in desk.holds.drop_lapsed()] == ["a"]
    assert desk.holds.drop_lapsed() == []
    assert set(desk.stored()) == {"b"}


def test_no_hold_is_created_while_retention_decides(desk: Desk) -> None:
    refused: list[PenstockError] = []

    def create_late() -> None:
        try:
            desk.create(offset=10)
        except PenstockError as error:
            refused.append(error)

    with desk.holds.unchanged() as lowest:
        assert lowest is None
        reader = Thread(target=create_late)
        reader.start()
        reader.join(0.05)  # it waits for us, or it is done and has a hold on what leaves now
        desk.index.trim(50)
    reader.join()
    assert [error.code for error in refused] == ["invalid-cursor"]
    assert desk.holds.lowest() is None
