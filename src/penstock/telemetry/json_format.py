"""JSON response of `/metrics`: the format of the In-memory Pub/Sub, extended.

Its keys keep their meaning: `messages_delivered` counts a message once per subscriber, `active_subscribers`
counts subscriptions. The server's own topics, with `$`, are left out.
"""

from asyncio import sleep
from collections.abc import Collection

from msgspec import Struct, field, json

from penstock.core.topics.topic import Topic
from penstock.model import Door, is_public
from penstock.telemetry.labels import DELIVERED, PUBLISHED, rank_topics
from penstock.telemetry.metrics import Audiences, ServerMetrics, dropped_of, expired_of
from penstock.telemetry.overview import Overview, in_ms, survey

TOPICS_A_SLICE = 200
"""Topics encoded in one turn of the event loop."""
SHARES = (0.95, 0.99)

_encode = json.Encoder().encode


class Latency(Struct):
    """Latency of recent messages, from the first byte read to the last byte written."""

    avg: float = 0.0
    p95: float = 0.0
    p99: float = 0.0


class TopicPart(Struct):
    """Metrics of one topic."""

    queue_depth: int
    """Messages in the fullest outbox of its subscribers."""
    queue_max_size: int
    batch_size_avg: float
    """Average number of its messages per delivery, recently."""
    messages_published: int
    messages_delivered: int
    messages_dropped: int
    subscriber_count: int
    latency_ms: Latency
    messages_expired: int
    queue_saturation: float
    """Fill level of the fullest outbox of its subscribers, by messages or by bytes, from 0 to 1."""


class GlobalPart(Struct):
    """Metrics of all topics together."""

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
    """Distinct filters with subscribers."""


class Metrics(Overview, kw_only=True):
    """Whole response."""

    uptime_seconds: float
    topics: dict[str, TopicPart]
    total: GlobalPart = field(name="global")
    topics_left_out: int
    """Topics that are not listed, because of the limit or because others were requested."""


async def render(metrics: ServerMetrics, names: Collection[str] = (), limit: int | None = None) -> bytes:
    """Encoded response; a slice of topics per turn of the event loop.

    Args:
        names: topics to list, if known; without any, the busiest.
        limit: maximum number of the latter, if below the setting.
    """
    topics = metrics.broker.topics
    listed = [topic for topic in map(topics.get, dict.fromkeys(names)) if topic is not None]
    if not names:
        most = metrics.settings.json_topics
        listed = await rank_topics(topics, most if limit is None else min(limit, most))
    parts = await _describe_all(listed, metrics)
    overview = await survey(metrics)
    count = len(topics) - topics.hidden
    listed_public = sum(is_public(topic.name) for topic in listed)
    return b'{"uptime_seconds":%b,"topics":{%b},"global":%b,"topics_left_out":%d,%b' % (
        _encode(round(metrics.uptime_s, 3)),
        b",".join(parts),
        _encode(_total(metrics, count)),
        max(count - listed_public, 0),
        _encode(overview)[1:],
    )


async def _describe_all(topics: list[Topic], metrics: ServerMetrics) -> list[bytes]:
    audiences = await Audiences.of(metrics.broker)
    parts: list[bytes] = []
    for start in range(0, len(topics), TOPICS_A_SLICE):
        for topic in topics[start : start + TOPICS_A_SLICE]:
            parts.append(b"%b:%b" % (_encode(topic.name), _encode(_describe(topic, audiences, metrics))))
        await sleep(0)
    return parts


def _describe(topic: Topic, audiences: Audiences, metrics: ServerMetrics) -> TopicPart:
    subscribers, depth = audiences.look_up(topic)
    recent, lost = topic.recent, topic.lost or {}
    latency = Latency()
    if recent is not None:
        times = (recent.mean_s, *recent.share_s(*SHARES))
        latency = Latency(*map(in_ms, times))
    return TopicPart(
        queue_depth=depth.messages,
        queue_max_size=metrics.outbox_limit,
        batch_size_avg=0.0 if recent is None else round(recent.mean_messages, 2),
        messages_published=topic.published,
        messages_delivered=topic.delivered,
        messages_dropped=dropped_of(lost),
        subscriber_count=subscribers,
        latency_ms=latency,
        messages_expired=expired_of(lost),
        queue_saturation=round(depth.saturation, 4),
    )


def _total(metrics: ServerMetrics, count: int) -> GlobalPart:
    broker, total = metrics.broker, metrics.total()
    total.subtract(broker.topic_stats.lost_reserved)
    total[DELIVERED] -= broker.counters.delivered_at[Door.SERVER]
    return GlobalPart(
        active_topics=count,
        active_subscribers=metrics.subscriptions,
        total_published=total[PUBLISHED],
        total_delivered=total[DELIVERED],
        total_dropped=dropped_of(total),
        total_expired=expired_of(total),
        connected_clients=metrics.connected,
        slow_subscribers=broker.slow_consumers.count,
        retained_messages=broker.retained.of_clients,
        filters=broker.filter_count,
    )
