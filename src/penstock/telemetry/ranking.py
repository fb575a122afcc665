"""The topics with most messages, found without keeping anyone waiting: a slice in each turn of the loop."""

from asyncio import sleep
from collections.abc import Container
from heapq import heappop, heappush, heappushpop

from penstock.core.registry import Registry, Topic
from penstock.model import is_public

TOPICS_A_SLICE = 1_000
"""Topics that are looked at in one turn of the loop."""


async def rank(
    topics: Registry, limit: int, *, least: int = 0, without: Container[str] = frozenset()
) -> list[Topic]:
    """Up to `limit` topics of clients that have at least so many messages since start, the most first."""
    best: list[tuple[int, str]] = []
    everything = list(topics.values())
    for start in range(0, len(everything), TOPICS_A_SLICE):
        for topic in everything[start : start + TOPICS_A_SLICE]:
            published, name = topic.published, topic.name
            if published < least or not is_public(name) or name in without:
                continue
            if len(best) < limit:
                heappush(best, (published, name))
            elif best and published > best[0][0]:
                heappushpop(best, (published, name))
        await sleep(0)
    return await _from_most(topics, best)


async def _from_most(topics: Registry, best: list[tuple[int, str]]) -> list[Topic]:
    """The topics of a heap in order; to sort very many at once would take long."""
    found: list[Topic] = []
    while best:
        names = [heappop(best)[1] for _ in range(min(TOPICS_A_SLICE, len(best)))]
        found += [topics[name] for name in names if name in topics]
        await sleep(0)
    return found[::-1]
