"""The figures as JSON, in the form that the In-memory Pub/Sub gives them, and a little more.

The keys of that form mean what they mean there: `messages_delivered` counts a message once for each
subscriber, `active_subscribers` counts subscriptions. The server's own topics, with `$`, are left out.
"""

from asyncio import sleep
from collections.abc import Collection

from msgspec import Struct, field, json

from penstock.core.registry import Topic
from penstock.model import Door, is_public
from penstock.telemetry.figures import Crowds, Figures, dropped_of, expired_of
from penstock.telemetry.labels import DELIVERED, PUBLISHED
from penstock.telemetry.overview import Overview, in_ms, survey
from penstock.telemetry.ranking import rank

TOPICS_A_SLICE = 200
"""Topics that are written in one turn of the loop."""
SHARES = (0.95, 0.99)

_encode = json.Encoder().encode


class Latency(Struct):
    """How long the last messages took, from the first byte read to the last byte written."""

    avg: float = 0.0
    p95: float = 0.0
    p99: float = 0.0


class TopicPart(Struct):
    """One topic."""

    queue_depth: int
    """Messages in the fullest outbox of its subscribers."""
    queue_max_size: int
    batch_size_avg: float
    """How many of its messages left together on average, of late."""
    messages_published: int
    messages_delivered: int
    messages_dropped: int
    subscriber_count: int
    latency_ms: Latency
    messages_expired: int
    queue_saturation: float
    """How full the fullest outbox of its subscribers is, by messages or by bytes: from 0 to 1."""


class GlobalPart(Struct):
    """All topics."""

    active_topics: int
    active_subscribers: int
    total_published: int
    total_delivered: int
    total_dropped: int
    total_expired: int
    connected_clients: int
    slow_subscribers: int
    retained_messages: int
    filters: int
    """Different filters that somebody subscribes to."""


class Metrics(Overview, kw_only=True):
    """The whole answer."""

    uptime_seconds: float
    topics: dict[str, TopicPart]
    total: GlobalPart = field(name="global")
    topics_left_out: int
    """Topics that are not listed, because there are too many or others were asked for."""


async def render(figures: Figures, names: Collection[str] = (), limit: int | None = None) -> bytes:
    """The answer as it is sent; a slice of topics in each turn of the loop.

    Args:
        names: the topics to tell of, if they are known; without any, those with most messages.
        limit: how many of the latter, if fewer than the settings allow.
    """
    topics = figures.broker.topics
    listed = [topic for topic in map(topics.get, dict.fromkeys(names)) if topic is not None]
    if not names:
        most = figures.settings.json_topics
        listed = await rank(topics, most if limit is None else min(limit, most))
    parts = await _describe_all(listed, figures)
    overview = await survey(figures)
    count = len(topics) - topics.hidden
    told = sum(is_public(topic.name) for topic in listed)
    return b'{"uptime_seconds":%b,"topics":{%b},"global":%b,"topics_left_out":%d,%b' % (
        _encode(round(figures.uptime_s, 3)),
        b",".join(parts),
        _encode(_total(figures, count)),
        max(count - told, 0),
        _encode(overview)[1:],
    )


async def _describe_all(topics: list[Topic], figures: Figures) -> list[bytes]:
    crowds = await Crowds.of(figures.broker)
    parts: list[bytes] = []
    for start in range(0, len(topics), TOPICS_A_SLICE):
        for topic in topics[start : start + TOPICS_A_SLICE]:
            parts.append(b"%b:%b" % (_encode(topic.name), _encode(_describe(topic, crowds, figures))))
        await sleep(0)
    return parts


def _describe(topic: Topic, crowds: Crowds, figures: Figures) -> TopicPart:
    subscribers, depth = crowds.look(topic)
    recent, lost = topic.recent, topic.lost or {}
    latency = Latency()
    if recent is not None:
        times = (recent.mean_s, *recent.share_s(*SHARES))
        latency = Latency(*map(in_ms, times))
    return TopicPart(
        queue_depth=depth.messages,
        queue_max_size=figures.outbox_limit,
        batch_size_avg=0.0 if recent is None else round(recent.mean_messages, 2),
        messages_published=topic.published,
        messages_delivered=topic.delivered,
        messages_dropped=dropped_of(lost),
        subscriber_count=subscribers,
        latency_ms=latency,
        messages_expired=expired_of(lost),
        queue_saturation=round(depth.saturation, 4),
    )


def _total(figures: Figures, count: int) -> GlobalPart:
    broker, total = figures.broker, figures.total()
    total.subtract(broker.tallies.lost_reserved)
    total[DELIVERED] -= broker.counters.delivered_at[Door.SERVER]
    return GlobalPart(
        active_topics=count,
        active_subscribers=figures.subscriptions,
        total_published=total[PUBLISHED],
        total_delivered=total[DELIVERED],
        total_dropped=dropped_of(total),
        total_expired=expired_of(total),
        connected_clients=figures.connected,
        slow_subscribers=broker.slow.count,
        retained_messages=broker.retained.of_clients,
        filters=broker.router.filters,
    )
