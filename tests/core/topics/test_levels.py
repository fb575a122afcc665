"""Topics as a tree: levels by name, the topics below each, and an index that follows the registry."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.settings import CoreSettings, LogSettings
from penstock.core.topics.levels import BLOCK, IDLE_S, Level, SortedNames, TopicLevels
from tests.support.broker import Stage
from tests.support.disk import Disk

NAMES = st.lists(st.text("ab/-\1é$", min_size=1, max_size=6), max_size=40)


def built(stage: Stage) -> TopicLevels:
    """The levels of a broker, indexed to the end."""
    levels = stage.broker.topic_levels
    while levels.build():
        pass
    return levels


def stage_with(*names: str) -> Stage:
    stage = Stage()
    for name in names:
        stage.broker.topics.make(name)
    return stage


def naive(names: set[str], under: str | None) -> list[Level]:
    """The levels below a path, from a look at every name."""
    prefix = "" if under is None else f"{under}/"
    below = [name for name in names if name.startswith(prefix)]
    levels = sorted({name[len(prefix) :].partition("/")[0] for name in below})
    paths = {level: prefix + level for level in levels}
    return [
        Level(
            level,
            path,
            path in names,
            sum(name == path or name.startswith(f"{path}/") for name in below),
        )
        for level, path in paths.items()
    ]


@given(NAMES, NAMES, st.data())
def test_levels_are_those_of_all_names(names: list[str], forgotten: list[str], data: st.DataObject) -> None:
    stage = stage_with(*names)
    levels = built(stage)
    for name in forgotten:
        if (topic := stage.broker.topics.get(name)) is not None:
            stage.broker.topics.forget_if_unused(topic)
    known = set(stage.broker.topics)
    under = data.draw(st.none() | st.sampled_from(["", *sorted({*known, "a", "a/b", "-"})]))
    expected = naive(known, under)
    assert list(levels.below(under)) == sorted(expected, key=lambda level: level.name)
    assert levels.count_below(under) == sum(level.topics for level in expected)
    for number, level in enumerate(expected):
        assert list(levels.below(under, level.name)) == expected[number + 1 :]
        path = level.path
        below = [name for block in levels.topics_of(path) for name in block]
        assert set(below) == {name for name in known if name == path or name.startswith(f"{path}/")}


def test_a_level_and_its_neighbours_with_lower_characters_are_told_apart() -> None:
    levels = built(stage_with("a/b", "a/b-c", "a/b/c", "a/b.d/e"))
    assert [(level.name, level.is_topic, level.topics) for level in levels.below("a")] == [
        ("b", True, 2),
        ("b-c", True, 1),
        ("b.d", False, 1),
    ]


def test_many_names_are_in_order_wherever_they_are_added_and_removed() -> None:
    names, kept = SortedNames(), [f"{number:05}" for number in range(5 * BLOCK)]
    for name in [*kept[::3], *reversed(kept[1::3]), *kept[2::3], *kept[::7]]:
        names.add(name)
    assert (len(names), names.count("00000", "01000")) == (5 * BLOCK, 1000)
    for name in kept[BLOCK : 4 * BLOCK]:
        names.discard(name)
        names.discard(name)
    left = [*kept[:BLOCK], *kept[4 * BLOCK :]]
    assert (len(names), names.count("", "~")) == (len(left), len(left))
    assert names.first_from(kept[BLOCK]) == kept[4 * BLOCK]
    assert names.first_from("~") is None
    for name in left:
        names.discard(name)
    assert (len(names), names.first_from(""), names.some_from("")) == (0, None, [])


def test_the_index_follows_what_is_made_and_forgotten_while_it_is_built() -> None:
    stage = stage_with(*(f"old/{number}" for number in range(3_000)))
    levels, topics = stage.broker.topic_levels, stage.broker.topics
    assert not levels.is_kept
    levels.build()
    topics.make("new")
    for number in range(0, 3_000, 2):
        topics.forget_if_unused(topics[f"old/{number}"])
    built(stage)
    assert [(level.name, level.topics) for level in levels.below(None)] == [("new", 1), ("old", 1_500)]


def test_an_index_without_readers_is_dropped_and_built_again() -> None:
    stage = stage_with("a")
    levels = built(stage)
    stage.clock.advance(IDLE_S - 1)
    levels.reap()
    assert levels.is_kept
    stage.clock.advance(1)
    stage.broker.reap()
    stage.settle()
    assert not levels.is_kept
    stage.broker.topics.make("b")
    assert [level.name for level in built(stage).below(None)] == ["a", "b"]


async def test_topics_that_only_the_log_knows_are_levels_until_they_are_deleted() -> None:
    keeps, disk = CoreSettings(log=LogSettings(capture=("#",))), Disk()
    before = Stage(keeps, disk=disk)
    for name in ("a/b", "a/c"):
        before.client(name).publish(name, b"x", qos=1)
    before.settle()
    stage = Stage(keeps, disk=disk)
    assert list(built(stage).below(None)) == []
    await stage.broker.catalog.load()
    assert [(level.name, level.topics) for level in built(stage).below(None)] == [("a", 2)]
    assert stage.broker.delete_topic("a/b")
    assert [level.name for level in built(stage).below("a")] == ["c"]
    stage.broker.topics.forget_if_unused(stage.broker.topics.make("a/c"))
    assert [level.name for level in built(stage).below("a")] == ["c"]
