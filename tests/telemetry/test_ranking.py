"""The topics with most messages, found in slices."""

import asyncio

from penstock.telemetry import ranking
from penstock.telemetry.ranking import TOPICS_A_SLICE, rank
from tests.telemetry.scenes import Scene, many


async def test_the_topics_with_most_messages_come_first() -> None:
    scene = Scene()
    scene.publish("a", "b", "b", "c", "c", "c")
    found = await rank(scene.broker.topics, 2)
    assert [topic.name for topic in found] == ["c", "b"]


async def test_topics_without_messages_are_found_if_they_are_wanted() -> None:
    scene = Scene()
    scene.publish("a")
    scene.broker.topics.make("silent")
    assert [topic.name for topic in await rank(scene.broker.topics, 9)] == ["a", "silent"]
    assert [topic.name for topic in await rank(scene.broker.topics, 9, least=1)] == ["a"]


async def test_some_can_be_left_out_and_the_servers_own_always_are() -> None:
    scene = Scene()
    scene.publish("a", "b")
    scene.broker.publish_server("$SYS/x", b"1")
    found = await rank(scene.broker.topics, 9, without={"a"})
    assert [topic.name for topic in found] == ["b"]


async def test_nothing_is_found_if_nothing_may_be() -> None:
    scene = Scene()
    scene.publish("a")
    assert await rank(scene.broker.topics, 0) == []


async def test_a_turn_of_the_loop_has_one_slice() -> None:
    scene = Scene()
    for name in many("t", 10 * TOPICS_A_SLICE):
        scene.broker.topics.make(name)
    turns = 0
    ranked = asyncio.ensure_future(rank(scene.broker.topics, 3 * TOPICS_A_SLICE))
    while not ranked.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 10 + 3
    assert len(ranked.result()) == 3 * ranking.TOPICS_A_SLICE


async def test_topics_may_come_and_go_meanwhile() -> None:
    scene = Scene()
    for name in many("t", 2 * TOPICS_A_SLICE):
        scene.broker.topics.make(name)
    ranked = asyncio.ensure_future(rank(scene.broker.topics, 10 * TOPICS_A_SLICE))
    await asyncio.sleep(0)
    scene.publish("new")
    scene.broker.topics.forget_unused()
    assert [topic.name for topic in await ranked] == []
    assert "new" in scene.broker.topics
