"""Going on after sequences: what is new comes once and in order, and what is missing is said first."""

from collections.abc import Callable, Mapping

import pytest

from penstock.common.cursor import Cursor, Position
from penstock.common.statement import Served
from penstock.common.topics import TopicLimits
from penstock.core.replay.catch_up import AfterSequences, Foresight
from penstock.core.settings import CoreSettings, LogSettings, RingSettings
from penstock.errors import InvalidCursor, InvalidRequest
from tests.core.replay.followers import Joiner, missing, numbers, publish
from tests.support.broker import Client, Stage
from tests.support.disk import Disk
from tests.support.encodings import PlainEncoding

MakeStage = Callable[[], tuple[Stage, Client, Joiner]]
NOTHING_MISSED = Foresight(0, False)
UNKNOWN = Foresight(None, True)


def memory_stage(ring: int = 100, capture: tuple[str, ...] = ()) -> tuple[Stage, Client, Joiner]:
    stage = Stage(CoreSettings(ring=RingSettings(messages=ring), log=LogSettings(capture=capture)))
    return stage, stage.client("s"), Joiner(stage)


def disk_stage(
    disk: Disk | None = None, ring: int = 100, capture: tuple[str, ...] = ("#",)
) -> tuple[Stage, Client, Joiner]:
    settings = CoreSettings(ring=RingSettings(messages=ring), log=LogSettings(capture=capture))
    stage = Stage(settings, disk=disk or Disk())
    return stage, stage.client("s"), Joiner(stage)


def after(
    stage: Stage,
    sequences: Mapping[str, int],
    offset: int | None = None,
    epoch: int | None = None,
    passed: Mapping[str, int] | None = None,
) -> AfterSequences:
    """After sequences and, for other topics, after an offset; of this epoch unless another is named."""
    history = stage.broker.history
    epoch = history.log.epoch if epoch is None else epoch
    place = Position(history.log.log_id, epoch, history.head if offset is None else offset)
    return AfterSequences(sequences, epoch, Cursor((place,)), passed or {})


# From memory


def test_what_is_missing_behind_a_position_is_counted_where_its_sequence_is_known() -> None:
    stage, sender, joiner = memory_stage(ring=3)
    publish(sender, "a", numbers(1, 2))
    position = stage.broker.history.head
    publish(sender, "a", numbers(3, 10))
    publish(sender, "b", numbers(1, 5))
    joiner.join(("a", "b"), after(stage, {}, position, passed={"a": 2, "b": 0}))
    assert joiner.foresights == [Foresight(5 + 2, True)]
    assert joiner.got == [*numbers(8, 10), *numbers(3, 5)]


def test_what_is_missing_behind_a_position_is_unknown_if_one_sequence_is() -> None:
    stage, sender, joiner = memory_stage(ring=3)
    publish(sender, "a", numbers(1, 10))
    publish(sender, "b", numbers(1, 5))
    joiner.join(("a", "b"), after(stage, {}, 0, passed={"a": 0}))
    assert joiner.foresights == [UNKNOWN]


def test_what_has_left_the_ring_is_counted_before_the_first_message() -> None:
    stage, sender, joiner = memory_stage(ring=3)
    publish(sender, "a", numbers(1, 10))
    joiner.join("a", after(stage, {"a": 5}))
    assert (joiner.begun, joiner.foresights) == ([0], [Foresight(2, True)])
    assert joiner.got == numbers(8, 10)
    (statement,) = joiner.statements
    assert missing(statement) == [("a", 6, 7, "evicted")]
    assert statement.topics == (Served("a", 3, 10),)


def test_everything_after_the_sequence_comes_before_join_returns_and_then_what_is_live() -> None:
    stage, sender, joiner = memory_stage()
    publish(sender, "a", numbers(1, 5))
    joiner.join("a", after(stage, {"a": 3}))
    assert (joiner.got, joiner.foresights) == (numbers(4, 5), [NOTHING_MISSED])
    publish(sender, "a", numbers(6, 7))
    stage.settle()
    assert (joiner.got, joiner.places) == (numbers(4, 7), [2])


def test_who_has_everything_gets_nothing_but_what_is_live() -> None:
    stage, sender, joiner = memory_stage()
    publish(sender, "a", numbers(1, 5))
    joiner.join("a", after(stage, {"a": 5}, 0))
    assert (joiner.got, joiner.foresights) == ([], [NOTHING_MISSED])
    assert joiner.statements[0].topics == ()
    publish(sender, "a", numbers(6, 6))
    stage.settle()
    assert joiner.got == numbers(6, 6)


def test_several_topics_go_on_each_after_its_own_sequence_in_one_order() -> None:
    stage, sender, joiner = memory_stage()
    for number in range(1, 10):
        publish(sender, "abc"[number % 3], numbers(number, number))
    joiner.join(["a", "b", "c"], after(stage, {"a": 1, "b": 3, "c": 2}))
    assert joiner.got == numbers(6, 6) + numbers(8, 9)
    assert set(joiner.statements[0].topics) == {Served("a", 2, 3), Served("c", 1, 3)}


def test_a_wildcard_goes_on_after_the_sequences_that_are_known_and_a_position_for_the_others() -> None:
    stage, sender, joiner = memory_stage()
    for number in range(1, 5):
        publish(sender, "t/a", numbers(number, number))
        publish(sender, "t/b", numbers(number + 10, number + 10))
    joiner.join("t/#", after(stage, {"t/a": 1}, 6))  # three of each
    assert joiner.got == [*numbers(2, 2), *numbers(3, 3), *numbers(4, 4), *numbers(14, 14)]
    assert joiner.foresights == [NOTHING_MISSED]


@pytest.mark.parametrize("sequence", [0, -1, 5])
def test_a_sequence_that_a_topic_never_had_says_nothing(sequence: int) -> None:
    stage, sender, joiner = memory_stage()
    publish(sender, "a", numbers(1, 4))
    joiner.join("a", after(stage, {"a": sequence}, 3))
    assert joiner.got == numbers(4, 4)


def test_topics_that_no_filter_means_are_overlooked() -> None:
    stage, sender, joiner = memory_stage()
    publish(sender, "a", numbers(1, 2))
    publish(sender, "b", numbers(3, 4))
    joiner.join("a", after(stage, {"a": 1, "b": 1}))
    assert joiner.got == numbers(2, 2)


def test_a_topic_that_nobody_has_used_is_no_gap() -> None:
    stage, sender, joiner = memory_stage()
    joiner.join("new", after(stage, {"new": 7}))
    assert joiner.foresights == [NOTHING_MISSED]
    publish(sender, "new", numbers(1, 1))
    stage.settle()
    assert joiner.got == numbers(1, 1)


def test_a_run_of_many_messages_is_cut_behind_the_sequence() -> None:
    stage, sender, joiner = memory_stage()
    sender.publish("a", *numbers(1, 6))
    sender.publish("b", *numbers(7, 9))
    joiner.join(["a", "b"], after(stage, {"a": 4, "b": 1}))
    assert joiner.got == [*numbers(5, 6), *numbers(8, 9)]


def test_what_a_topic_lost_after_the_position_cannot_be_counted_without_its_sequence() -> None:
    stage, sender, joiner = memory_stage(ring=2)
    publish(sender, "a", numbers(1, 5))
    joiner.join("+", after(stage, {}, 1))
    assert (joiner.foresights, joiner.got) == ([UNKNOWN], numbers(4, 5))


def test_one_topic_that_cannot_be_counted_makes_the_sum_unknown() -> None:
    stage, sender, joiner = memory_stage(ring=2)
    publish(sender, "a", numbers(1, 5))
    publish(sender, "b", numbers(1, 5))
    joiner.join(["a", "b"], after(stage, {"a": 1}, 5))
    assert joiner.foresights == [UNKNOWN]


def test_several_topics_are_summed() -> None:
    stage, sender, joiner = memory_stage(ring=2)
    publish(sender, "a", numbers(1, 5))
    publish(sender, "b", numbers(1, 7))
    joiner.join(["a", "b"], after(stage, {"a": 1, "b": 4}))
    assert joiner.foresights == [Foresight(3, True)]


def test_what_has_expired_is_told_and_not_counted_as_missed() -> None:
    stage, sender, joiner = memory_stage()
    publish(sender, "a", numbers(1, 2), ttl=1.0)
    publish(sender, "a", numbers(3, 3))
    stage.advance(2.0)
    joiner.join("a", after(stage, {"a": 1}))
    assert (joiner.foresights, joiner.got) == ([NOTHING_MISSED], numbers(3, 3))
    assert missing(joiner.statements[0]) == [("a", 2, 2, "expired")]


def test_the_past_has_a_form_of_its_own() -> None:
    stage, sender, joiner = memory_stage()
    publish(sender, "a", numbers(1, 2))
    joiner.join("a", after(stage, {"a": 1}), past_encoding=PlainEncoding(identifiers=(7,)))
    publish(sender, "a", numbers(3, 3))
    stage.settle()
    assert [each.identifiers for each in joiner.client.connection.deliveries] == [(7,), ()]


def crowded_stage() -> tuple[Stage, Client, Joiner]:
    """One that has room for few topics and keeps nothing of them, so that they are soon forgotten."""
    stage = Stage(CoreSettings(ring=RingSettings(messages=0), topic=TopicLimits(max_topics=3)))
    return stage, stage.client("s"), Joiner(stage)


@pytest.mark.parametrize(("filters", "sequences"), [("t/#", {}), ("t/a", {}), ("t/a", {"t/a": 1})])
def test_what_went_with_a_forgotten_topic_cannot_be_counted(filters: str, sequences: dict[str, int]) -> None:
    stage, sender, joiner = crowded_stage()
    for name in ("t/a", "t/b", "t/c"):
        publish(sender, name, numbers(1, 2))
    stage.advance(1)
    assert not stage.broker.topics
    joiner.join(filters, after(stage, sequences, 0))
    assert joiner.foresights == [UNKNOWN]


def test_who_came_after_a_topic_was_forgotten_misses_nothing() -> None:
    stage, sender, joiner = crowded_stage()
    for name in ("t/a", "t/b", "t/c"):
        publish(sender, name, numbers(1, 2))
    stage.advance(1)
    joiner.join("t/#", after(stage, {}))
    assert joiner.foresights == [NOTHING_MISSED]


def test_a_topic_that_was_there_all_the_time_was_not_forgotten() -> None:
    stage, sender, joiner = crowded_stage()
    stage.client("r").subscribe("t/a")
    publish(sender, "t/a", numbers(1, 1))
    place = stage.broker.history.head
    publish(sender, "t/b", numbers(1, 2))
    publish(sender, "t/c", numbers(1, 2))
    stage.advance(1)
    assert list(stage.broker.topics) == ["t/a"]
    joiner.join("t/a", after(stage, {}, place))
    assert joiner.foresights == [NOTHING_MISSED]


def test_sequences_that_were_skipped_because_a_topic_was_forgotten_are_not_counted() -> None:
    stage, sender, joiner = crowded_stage()
    publish(sender, "t/a", numbers(1, 2))
    publish(sender, "t/b", numbers(1, 50))
    publish(sender, "t/c", numbers(1, 2))
    stage.advance(1)
    publish(sender, "t/a", numbers(3, 3))
    assert stage.broker.topics["t/a"].sequence == 51
    joiner.join("t/a", after(stage, {"t/a": 1}, 0))
    assert joiner.foresights == [UNKNOWN]


@pytest.mark.parametrize(
    ("filters", "sequences", "foresight"),
    [
        ("t/#", {}, UNKNOWN),
        ("t/a", {}, UNKNOWN),
        ("t/#", {"t/a": 1}, Foresight(2, True)),
        ("t/a", {"t/a": 1}, Foresight(2, True)),
        ("t/a", {"t/a": 3}, NOTHING_MISSED),
        ("b", {}, NOTHING_MISSED),
    ],
)
async def test_what_went_with_a_deleted_topic_is_missing(
    filters: str, sequences: dict[str, int], foresight: Foresight
) -> None:
    stage, sender, joiner = memory_stage()
    publish(sender, "t/a", numbers(1, 3))
    publish(sender, "b", numbers(1, 1))
    stage.broker.delete_topic("t/a")
    joiner.join(filters, after(stage, sequences, 0))
    await joiner.settle()
    assert joiner.foresights == [foresight]


async def test_who_has_all_of_a_topic_that_was_deleted_before_a_restart_misses_nothing() -> None:
    disk = Disk()
    stage, sender, _ = disk_stage(disk)
    publish(sender, "other", numbers(1, 50))
    publish(sender, "a", numbers(1, 4))
    epoch = stage.log.epoch
    stage.broker.delete_topic("a")
    stage.settle()
    disk.sync()
    stage.settle()
    disk.crash()
    stage, _, joiner = disk_stage(disk)
    joiner.join("a", after(stage, {"a": 4}, 0, epoch))
    await joiner.settle()
    assert joiner.foresights == [NOTHING_MISSED]


async def test_many_topics_are_looked_for_in_turns() -> None:
    stage, sender, joiner = memory_stage(ring=2)
    names = [f"t/{number}" for number in range(700)]
    for name in names:
        publish(sender, name, numbers(1, 4))
    joiner.join("t/+", after(stage, dict.fromkeys(names, 1)))
    assert joiner.foresights == []
    await joiner.settle()
    assert joiner.foresights == [Foresight(700, True)]
    assert joiner.begun == [0]
    assert (joiner.count, len(joiner.statements[0].topics)) == (1_400, 700)


def test_a_position_of_another_log_is_refused() -> None:
    _, _, joiner = memory_stage()
    foreign = AfterSequences({"a": 1}, 1, Cursor((Position("00" * 8, 1, 0),)))
    with pytest.raises(InvalidCursor):
        joiner.join("a", foreign)


def test_sequences_of_an_epoch_to_come_are_refused() -> None:
    stage, _, joiner = memory_stage()
    start = after(stage, {"a": 1})
    with pytest.raises(InvalidCursor, match="epoch"):
        joiner.join("a", AfterSequences(start.sequences, 2, start.otherwise))


def test_a_shared_filter_has_no_past_to_go_on_with() -> None:
    stage, _, joiner = memory_stage()
    with pytest.raises(InvalidRequest, match="shared"):
        joiner.join("$share/g/a", after(stage, {"a": 1}))


# From the log


@pytest.mark.parametrize("make", [lambda: memory_stage(2, ("#",)), lambda: disk_stage(ring=2)])
async def test_what_has_left_the_ring_comes_from_the_log(make: MakeStage) -> None:
    stage, sender, joiner = make()
    for number in range(1, 9):
        publish(sender, "ab"[number % 2], numbers(number, number))
    stage.settle()
    joiner.join(["a", "b"], after(stage, {"a": 1, "b": 2}))
    assert (joiner.got, joiner.foresights) == ([], []), "what is missing is not known yet"
    await joiner.settle()
    assert joiner.got == numbers(4, 8)
    assert (joiner.begun, joiner.foresights) == ([0], [NOTHING_MISSED])
    assert joiner.statements[0].is_complete


async def test_what_the_log_let_go_of_is_counted_exactly() -> None:
    disk = Disk()
    stage, sender, joiner = disk_stage(disk, ring=2)
    publish(sender, "a", numbers(1, 9))
    stage.settle()
    disk.trim(5)
    joiner.join("a", after(stage, {"a": 2}))
    await joiner.settle()
    assert (joiner.foresights, joiner.got) == ([Foresight(3, True)], numbers(6, 9))
    assert missing(joiner.statements[0]) == [("a", 3, 5, "retention")]


async def test_a_log_that_let_go_of_something_behind_the_position_may_have_been_ours() -> None:
    disk = Disk()
    stage, sender, joiner = disk_stage(disk, ring=2)
    publish(sender, "a", numbers(1, 9))
    stage.settle()
    disk.trim(5)
    joiner.join("#", after(stage, {}, 2))
    await joiner.settle()
    assert (joiner.foresights, joiner.got) == ([UNKNOWN], numbers(6, 9))


async def test_what_was_lost_in_the_middle_is_told_in_the_end() -> None:
    disk = Disk()
    stage, sender, joiner = disk_stage(disk, ring=1)
    publish(sender, "a", numbers(1, 6))
    stage.settle()
    disk.content.runs = [run for run in disk.content.runs if run.offset != 4]
    joiner.join("a", after(stage, {"a": 1}))
    await joiner.settle()
    assert joiner.foresights == [NOTHING_MISSED]
    assert joiner.got == [*numbers(2, 3), *numbers(5, 6)]
    assert missing(joiner.statements[0]) == [("a", 4, 4, "never-stored")]


async def test_what_the_log_has_let_go_of_is_not_promised_because_a_ring_has_it() -> None:
    disk = Disk()
    stage, sender, joiner = disk_stage(disk, ring=1)
    publish(sender, "b", numbers(1, 2))
    for number in (1, 2, 3):
        publish(sender, "a", numbers(number, number))
    stage.settle()
    disk.trim(2)
    joiner.join(("a", "b"), after(stage, {"b": 1}, 2))
    await joiner.settle()
    assert joiner.foresights == [UNKNOWN]
    assert missing(joiner.statements[0]) == [("b", 2, 2, "retention")]


# After a restart


async def test_after_a_restart_a_reader_goes_on_where_it_was() -> None:
    disk = Disk()
    stage, sender, _ = disk_stage(disk)
    publish(sender, "a", numbers(1, 5))
    stage.settle()
    stage, sender, joiner = disk_stage(disk)
    publish(sender, "a", numbers(6, 6))
    joiner.join("a", after(stage, {"a": 3}, 3, epoch=1))
    await joiner.settle()
    assert (joiner.got, joiner.foresights) == (numbers(4, 6), [NOTHING_MISSED])


async def test_sequences_that_a_crash_took_are_given_again_and_count_as_missed() -> None:
    disk = Disk()
    stage, sender, _ = disk_stage(disk)
    publish(sender, "a", numbers(1, 4))
    stage.settle()
    disk.is_stuck = True
    publish(sender, "a", numbers(5, 7))
    stage.settle()
    disk.crash()
    disk.is_stuck = False
    stage, sender, joiner = disk_stage(disk)
    publish(sender, "a", numbers(50, 52))
    stage.settle()
    joiner.join("a", after(stage, {"a": 6}, 6, epoch=1))
    await joiner.settle()
    assert joiner.got == numbers(50, 52), "5 and 6 of before are not 5 and 6 of now"
    assert joiner.foresights == [Foresight(2, True)]
    assert missing(joiner.statements[0]) == [("a", 5, 6, "lost-uncommitted")]


async def test_a_position_that_a_crash_took_is_a_gap_of_unknown_size() -> None:
    disk = Disk()
    stage, sender, _ = disk_stage(disk)
    publish(sender, "a", numbers(1, 4))
    stage.settle()
    disk.is_stuck = True
    publish(sender, "a", numbers(5, 7))
    stage.settle()
    disk.crash()
    disk.is_stuck = False
    stage, sender, joiner = disk_stage(disk)
    publish(sender, "a", numbers(50, 50))
    joiner.join("#", after(stage, {}, 6, epoch=1))
    await joiner.settle()
    assert (joiner.got, joiner.foresights) == (numbers(50, 50), [UNKNOWN])


@pytest.mark.parametrize("offset", [3, 5])
async def test_what_was_in_memory_alone_is_gone_with_it(offset: int) -> None:
    disk = Disk()
    stage, sender, _ = disk_stage(disk, capture=("kept",))
    publish(sender, "loose", numbers(1, 4))
    publish(sender, "kept", numbers(5, 5))
    stage.settle()
    stage, sender, joiner = disk_stage(disk, capture=("kept",))
    publish(sender, "loose", numbers(11, 13))
    joiner.join("loose", after(stage, {"loose": 3}, offset, epoch=1))
    await joiner.settle()
    assert (joiner.got, joiner.foresights) == (numbers(11, 13), [UNKNOWN])
    assert joiner.statements[0].gaps


@pytest.mark.parametrize(("filter", "foresight"), [("kept/#", NOTHING_MISSED), ("#", UNKNOWN)])
async def test_filters_that_the_log_covers_lose_nothing_by_a_restart(
    filter: str, foresight: Foresight
) -> None:
    disk = Disk()
    stage, sender, _ = disk_stage(disk, capture=("kept/#",))
    publish(sender, "kept/a", numbers(1, 4))
    stage.settle()
    stage, sender, joiner = disk_stage(disk, capture=("kept/#",))
    joiner.join(filter, after(stage, {}, 1, epoch=1))
    await joiner.settle()
    assert (joiner.got, joiner.foresights) == (numbers(2, 4), [foresight])


@pytest.mark.parametrize(("messages", "foresight"), [(2, NOTHING_MISSED), (3, UNKNOWN)])
async def test_one_of_many_topics_that_lost_something_makes_the_sum_unknown(
    messages: int, foresight: Foresight
) -> None:
    stage, sender, joiner = memory_stage(ring=2)
    publish(sender, "t/first", numbers(1, messages))
    for number in range(1_500):
        publish(sender, f"t/{number}", numbers(1, 1))
    joiner.join("t/+", after(stage, {}, 0))
    assert joiner.foresights == []
    await joiner.settle()
    assert joiner.foresights == [foresight]


async def test_after_a_restart_topics_that_were_read_to_their_end_need_no_look_into_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = Disk()
    stage, sender, _ = disk_stage(disk)
    publish(sender, "a", numbers(1, 4))
    publish(sender, "b", numbers(1, 2))
    stage.settle()
    disk.crash()
    stage, sender, joiner = disk_stage(disk)
    publish(sender, "b", numbers(3, 5))
    stage.settle()
    looked: list[str] = []
    monkeypatch.setattr(stage.broker.history, "since_sequence", lambda name, *_, **__: looked.append(name))
    joiner.join(("a", "b"), after(stage, {"a": 4, "b": 2}, 0, epoch=1))
    await joiner.settle()
    assert (looked, joiner.foresights, joiner.got) == ([], [NOTHING_MISSED], numbers(3, 5))
