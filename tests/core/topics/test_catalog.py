"""Topic catalog: topics that only the log knows, and last sequences without a read on the loop."""

import asyncio

import pytest

from penstock.common.topics import TopicLimits
from penstock.core.settings import CoreSettings, LogSettings, RingSettings
from penstock.core.topics import catalog
from tests.support.broker import Stage
from tests.support.disk import Disk

KEEPS = LogSettings(capture=("#",))


def restarted(*names: str, max_topics: int = 1_000) -> Stage:
    """A stage whose log had messages of some topics before."""
    disk = Disk()
    before = Stage(CoreSettings(log=KEEPS), disk=disk)
    sender = before.client("s")
    for name in names:
        sender.publish(name, b"x", b"y", qos=1)
    before.settle()
    return Stage(CoreSettings(log=KEEPS, topic=TopicLimits(max_topics=max_topics)), disk=disk)


async def test_nothing_is_known_before_somebody_asks() -> None:
    stage = restarted("a", "b")
    known, broker = stage.broker.catalog, stage.broker
    assert (dict(known.stored), broker.is_dormant("a")) == ({}, False)
    await known.load()
    assert dict(known.stored) == {"a": 2, "b": 2}
    assert broker.is_dormant("a")
    assert not stage.broker.topics


async def test_a_topic_that_is_used_or_deleted_is_dormant_no_more() -> None:
    stage = restarted("a", "b", "c")
    known, broker = stage.broker.catalog, stage.broker
    await known.load()
    stage.client("s").publish("a", b"z", qos=1)
    assert stage.broker.delete_topic("b")
    stage.settle()
    assert [broker.is_dormant(name) for name in ("a", "b", "c", "d")] == [False, False, True, False]


async def test_the_log_is_asked_once_by_all_who_wait_and_never_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "NAMES_AT_ONCE", 2)
    stage = restarted("a", "b", "c")
    known, asked = stage.broker.catalog, []
    ask = stage.broker.log.topics_after

    async def topics_after(name: str, limit: int) -> list[tuple[str, int]]:
        asked.append(name)
        await asyncio.sleep(0)
        return await ask(name, limit)

    monkeypatch.setattr(stage.broker.log, "topics_after", topics_after)
    await asyncio.gather(known.load(), known.load())
    await known.load()
    assert asked == ["", "b", "c"]
    assert list(known.stored) == ["a", "b", "c"]


async def test_no_more_names_are_remembered_than_there_may_be_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "NAMES_AT_ONCE", 1)
    stage = restarted("a", "b", "c", max_topics=2)
    await stage.broker.catalog.load()
    assert list(stage.broker.catalog.stored) == ["a", "b"]


def sequences_read(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Topics whose last sequence the log is asked for from now on."""
    asked: list[str] = []
    ask = stage.log.last_sequence
    monkeypatch.setattr(stage.log, "last_sequence", lambda name: (asked.append(name), ask(name))[1])
    return asked


async def test_once_it_is_loaded_no_publish_reads_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = restarted("a", "b")
    await stage.broker.catalog.load()
    asked = sequences_read(stage, monkeypatch)
    sender = stage.client("s")
    for name in ("a", "new"):
        sender.publish(name, b"z", qos=1)
    assert (stage.broker.topics["a"].sequence, stage.broker.topics["new"].sequence) == (3, 1)
    assert stage.broker.history.newest("b") == 2
    assert [stage.broker.has_topic(name) for name in ("b", "c")] == [True, False]
    assert asked == []


async def test_until_it_is_loaded_the_log_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = restarted("a")
    asked = sequences_read(stage, monkeypatch)
    stage.client("s").publish("a", b"z", qos=1)
    assert (stage.broker.topics["a"].sequence, asked) == (3, ["a"])


async def test_the_log_is_asked_for_names_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "NAMES_AT_ONCE", 1)
    stage = restarted("a", "b", "c", max_topics=2)
    await stage.broker.catalog.load()
    asked = sequences_read(stage, monkeypatch)
    stage.client("s").publish("c", b"z", qos=1)
    assert (stage.broker.topics["c"].sequence, asked) == (3, ["c"])


async def test_the_log_is_asked_for_a_topic_that_was_used_and_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = Disk()
    settings = CoreSettings(log=KEEPS, ring=RingSettings(messages=0))
    stage = Stage(settings, disk=disk)
    await stage.broker.catalog.load()
    stage.client("s").publish("a", b"1", b"2", qos=1)
    stage.settle()
    assert stage.broker.topics.forget_unused() == 1
    asked = sequences_read(stage, monkeypatch)
    assert (stage.broker.catalog.last_sequence("a"), stage.broker.history.newest("a")) == (2, 2)
    assert asked == ["a", "a"]


async def test_the_log_is_asked_if_some_names_could_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = restarted("a")
    monkeypatch.setattr(stage.log, "has_unreadable_names", True)
    await stage.broker.catalog.load()
    asked = sequences_read(stage, monkeypatch)
    stage.client("s").publish("a", b"z", qos=1)
    assert (stage.broker.topics["a"].sequence, asked) == (3, ["a"])


async def test_nothing_is_kept_at_the_start_of_a_log_with_very_many_names() -> None:
    stage = restarted("a", "b", "c")
    await stage.broker.catalog.load(limit=2)
    assert dict(stage.broker.catalog.stored) == {}
    assert stage.broker.history.newest("c") == 2
    await stage.broker.catalog.load()
    assert list(stage.broker.catalog.stored) == ["a", "b", "c"]
