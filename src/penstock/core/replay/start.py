"""Start of a replay: after a cursor, after sequences, or with the last messages.

The last messages of a filter are known at once where rings hold them. Otherwise the log is read backwards in
growing steps that count messages, and only their positions are kept meanwhile.
"""

from asyncio import sleep
from collections import deque
from collections.abc import Iterable
from typing import TypeAlias

from msgspec import Struct

from penstock.common.cursor import Cursor
from penstock.common.topics import is_wildcard, matches
from penstock.core.replay.history import History
from penstock.core.replay.reader import NEAR_MESSAGES, NEAR_TOPICS, Replay
from penstock.core.replay.resume import AfterSequences, Foresight, Resumption
from penstock.core.replay.sources import gone_offset
from penstock.core.topics.topic import Topic
from penstock.errors import InvalidRequest
from penstock.runs import Run

__all__ = ["After", "AfterSequences", "Foresight", "Last", "PlannedReplay", "Start", "begin", "search"]

MOST_LAST = 100_000
"""Most last messages that a client may request."""
LEAST_REACH = 1_000
LOOK_BYTES = 256 * 1024


class After(Struct, frozen=True):
    """With the first message behind a cursor."""

    cursor: Cursor


class Last(Struct, frozen=True):
    """With the newest messages of all filters and topics together, as many as are still there."""

    count: int


Start: TypeAlias = After | AfterSequences | Last
Filters: TypeAlias = tuple[str, ...]


class PlannedReplay(Struct, frozen=True):
    """A replay that has not begun, and what is known of it."""

    replay: Replay
    foresight: Foresight | None = None
    """Missing messages, for a client that resumes after sequences."""


def begin(history: History, filters: Filters, start: Start) -> PlannedReplay | None:
    """A replay from a start on; None if it takes a while to find out where that is.

    Raises:
        InvalidCursor: it is of another log, or names a position that does not exist yet.
        InvalidRequest: the number of last messages is none, or too many.
    """
    if isinstance(start, After):
        return PlannedReplay(history.replay(filters, start.cursor))
    if isinstance(start, AfterSequences):
        found = Resumption(history, filters, start).begin_now()
        return None if found is None else PlannedReplay(*found)
    if not 0 <= start.count <= MOST_LAST:
        raise InvalidRequest(f"the number of last messages is between 0 and {MOST_LAST}")
    after = find_last_now(history, filters, start.count)
    return None if after is None else PlannedReplay(_replay(history, filters, after))


async def search(history: History, filters: Filters, start: Start, head: int) -> PlannedReplay:
    """The same, whatever it takes; the last messages are those up to an offset."""
    if isinstance(start, AfterSequences):
        return PlannedReplay(*await Resumption(history, filters, start).begin())
    if isinstance(start, After):
        return PlannedReplay(history.replay(filters, start.cursor))
    return PlannedReplay(_replay(history, filters, await find_last(history, filters, start.count, head)))


def _replay(history: History, filters: Filters, after: int) -> Replay:
    """A replay without the messages of topics that were deleted since: these are not among the last ones."""
    return Replay(history, filters, after, floors=history.topics.floors)


def find_last_now(history: History, filters: Filters, count: int) -> int | None:
    """Return the offset after which the last messages of filters lie; None if rings do not show it."""
    if not count:
        return history.head
    topics = _find_topics(history, filters)
    if topics is None or sum(topic.ring.messages if topic.ring else 1 for topic in topics) > NEAR_MESSAGES:
        return None
    now = history.clock.monotonic()
    runs = [run for topic in topics for run in topic.runs if not run.is_expired(now)]
    after = _cut(sorted(runs, key=lambda run: run.offset), count)
    return after if _is_sure(history, filters, topics, after) else None


def _find_topics(history: History, filters: Filters) -> list[Topic] | None:
    """The topics that filters match; None if there are too many to look for them now."""
    if not any(map(is_wildcard, filters)):
        return [topic for topic in map(history.topics.get, filters) if topic is not None]
    if len(history.topics) > NEAR_TOPICS:
        return None
    return [topic for name, topic in history.topics.items() if _is_meant(filters, name)]


def _is_meant(filters: Filters, name: str) -> bool:
    return any(matches(filter, name) for filter in filters)


def _cut(runs: list[Run], count: int) -> int:
    """The offset after which the last messages of some runs lie; 0 if there are not enough."""
    for run in reversed(runs):
        if run.count >= count:
            return run.offset + run.count - count - 1
        count -= run.count
    return 0


def _is_sure(history: History, filters: Filters, topics: Iterable[Topic], after: int) -> bool:
    """Return whether the log has nothing after an offset that rings lack."""
    if not (history.log.is_durable or history.log.last_offset):
        return True  # it keeps nothing
    if after < history.start or history.topics.forgotten_sequence:
        return False
    if any(gone.offset > after and _is_meant(filters, name) for name, gone in history.topics.gone.items()):
        return False
    return all(gone_offset(topic) <= after for topic in topics)  # what they have lost it may have


async def find_last(history: History, filters: Filters, count: int, head: int) -> int:
    """The offset after which the last messages of filters up to `head` lie that are still there."""
    reach = max(count, LEAST_REACH)
    floor = history.topics.floors.get(filters[0], 0) if len(filters) == 1 else 0
    while True:
        start = max(await _reach_back(history, filters, reach, head), floor)
        found = await _count_back(_replay(history, filters, start), count, head)
        if found is not None or start == floor:
            return floor if found is None else found
        reach *= 4  # too few of what is there is meant, or still there


async def _reach_back(history: History, filters: Filters, reach: int, head: int) -> int:
    """Return an offset about this many messages back, of one topic or of all; 0 for the beginning."""
    if len(filters) > 1 or is_wildcard(filters[0]):
        return max(head - reach, 0)
    first = history.newest(filters[0]) - reach + 1
    if first <= 1:
        return 0
    found = await history.log.find_sequence(filters[0], first)
    return min(history.log.last_offset if found is None else found, head)


async def _count_back(replay: Replay, count: int, head: int) -> int | None:
    """The offset after which the last messages of a replay up to `head` lie; None if it has not as many."""
    places: deque[tuple[int, int]] = deque()  # of runs: the offset, and how many messages
    total = 0
    while True:
        chunk = await replay.read(LOOK_BYTES)
        for run in chunk.runs:
            messages = min(run.count, head - run.offset + 1)
            if messages <= 0:
                break
            places.append((run.offset, messages))
            total += messages
            while total - places[0][1] >= count:
                total -= places.popleft()[1]
        if replay.after >= head:
            break
        await sleep(0)  # a log in memory would not let others have their turn
    return places[0][0] + total - count - 1 if total >= count else None
