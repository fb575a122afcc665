"""Topics that only the log knows."""

import asyncio

import pytest

from penstock.common.topics import TopicLimits
from penstock.core.settings import CoreSettings, LogSettings
from penstock.core.topics import stored_names
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
    known = stage.broker.stored_names
    assert (dict(known.names), known.is_dormant("a")) == ({}, False)
    await known.load()
    assert dict(known.names) == {"a": 2, "b": 2}
    assert known.is_dormant("a")
    assert not stage.broker.topics


async def test_a_topic_that_is_used_or_deleted_is_dormant_no_more() -> None:
    stage = restarted("a", "b", "c")
    known = stage.broker.stored_names
    await known.load()
    stage.client("s").publish("a", b"z", qos=1)
    assert stage.broker.delete_topic("b")
    stage.settle()
    assert [known.is_dormant(name) for name in ("a", "b", "c", "d")] == [False, False, True, False]


async def test_the_log_is_asked_once_by_all_who_wait_and_never_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_names, "NAMES_AT_ONCE", 2)
    stage = restarted("a", "b", "c")
    known, asked = stage.broker.stored_names, []
    ask = stage.broker.log.topics_after

    async def topics_after(name: str, limit: int) -> list[tuple[str, int]]:
        asked.append(name)
        await asyncio.sleep(0)
        return await ask(name, limit)

    monkeypatch.setattr(stage.broker.log, "topics_after", topics_after)
    await asyncio.gather(known.load(), known.load())
    await known.load()
    assert asked == ["", "b", "c"]
    assert list(known.names) == ["a", "b", "c"]


async def test_no_more_names_are_remembered_than_there_may_be_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_names, "NAMES_AT_ONCE", 1)
    stage = restarted("a", "b", "c", max_topics=2)
    await stage.broker.stored_names.load()
    assert list(stage.broker.stored_names.names) == ["a", "b"]
