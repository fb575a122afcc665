"""Views of a server's topics, clients, losses and health, for people at a terminal.

A script gets the names and figures of the API. On a terminal a column has a title in plain words, sizes and
times have units, and no figure is shown twice.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from penstock.cli.output import Column, Row, text_of
from penstock.common.text import (
    ABSENT,
    count_text,
    counted,
    duration_text,
    milliseconds_text,
    percent_text,
    size_text,
)

DOOR_NAMES = {"sidecar": "gRPC", "mqtt": "MQTT", "http": "HTTP", "web": "WebSocket"}
"""Names that people use for the doors; settings, metrics and JSON have others."""

Pairs = Iterator[tuple[str, str]]


def door_text(door: str | None) -> str:
    """A door by the name that people know: `gRPC` for `sidecar`."""
    return text_of(DOOR_NAMES.get(door or "", door))


def yes_text(value: bool | None) -> str:
    """`yes` or `no`."""
    return ABSENT if value is None else "yes" if value else "no"


def age_text(moment: str | None, now: datetime | None = None) -> str:
    """Age of a time of the API: `2 min 05 s ago`."""
    when = _moment(moment)
    if when is None:
        return text_of(moment)
    seconds = ((now or datetime.now(UTC)) - when).total_seconds()
    return f"{duration_text(max(seconds, 0.0))} ago"


def time_text(moment: str | None) -> str:
    """A time of the API to the second: `2026-01-31 12:00:00 UTC`."""
    when = _moment(moment)
    return text_of(moment) if when is None else f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _moment(text: str | None) -> datetime | None:
    try:
        when = None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return None
    return when if when is None or when.tzinfo else when.replace(tzinfo=UTC)


def _sequences(row: Row) -> str:
    first, last = row.get("first"), row.get("last")
    if first is None or first == last:
        return count_text(last)
    return f"{count_text(first)} to {count_text(last)}"


def _slow_since(row: Row) -> str:
    """Since when a subscriber is slow, or how long ago it stopped being slow."""
    if row.get("is_slow"):
        return age_text(row.get("since"))
    return f"until {age_text(row.get('last_slow_at'))}"


def _of(key: str, as_text: Callable[[Any], str]) -> Callable[[Row], str]:
    return lambda row: as_text(row.get(key))


TOPICS = (
    Column("topic", _of("name", text_of)),
    Column("messages", _of("sequence", count_text), is_number=True),
    Column("since start", _of("published", count_text), is_number=True),
    Column("subscribers", _of("subscribers", count_text), is_number=True),
    Column("in memory", _of("ring_messages", count_text), is_number=True),
    Column("retained", _of("retained", yes_text)),
    Column("logged", _of("kept", yes_text)),
)
RETAINED = (
    Column("topic", _of("topic", text_of)),
    Column("sequence", _of("sequence", count_text), is_number=True),
    Column("published", _of("published_at", age_text)),
    Column("type", _of("content_type", text_of)),
    Column("payload", _of("payload", text_of)),
)
CLIENTS = (
    Column("client", _of("client_id", text_of)),
    Column("user", _of("user", text_of)),
    Column("door", _of("door", door_text)),
    Column("connected", _of("connected", yes_text)),
    Column("filters", _of("subscriptions", count_text), is_number=True),
    Column("waiting", _of("waiting_messages", count_text), is_number=True),
    Column("offline", _of("owed_messages", count_text), is_number=True),
    Column("slow", _of("is_slow", yes_text)),
)
SLOW = (
    Column("client", _of("client_id", text_of)),
    Column("slow since", _slow_since),
    Column("waiting", _of("waiting_messages", count_text), is_number=True),
    Column("size", _of("waiting_bytes", size_text), is_number=True),
    Column("oldest", _of("oldest_age_s", duration_text), is_number=True),
    Column("lost", _of("dropped", count_text), is_number=True),
    Column("policy", _of("policy", text_of)),
    Column("connected", _of("connected", yes_text)),
)
LOSSES = (
    Column("when", _of("last_at", age_text)),
    Column("topic", _of("topic", text_of)),
    Column("sequences", _sequences),
    Column("messages", _of("count", count_text), is_number=True),
    Column("client", _of("client_id", text_of)),
    Column("reason", _of("reason", text_of)),
    Column("policy", _of("policy", text_of)),
)
ROWS = tuple(column for column in LOSSES if column.title != "topic")
"""Columns of the losses of one topic."""


def topic_facts(topic: Row) -> Pairs:
    """Facts about one topic, each once."""
    yield "topic", text_of(topic.get("name"))
    yield "last sequence", count_text(topic.get("sequence"))
    yield "published since start", count_text(topic.get("published"))
    yield "delivered", count_text(topic.get("messages_delivered"))
    yield "not delivered", count_text(topic.get("messages_dropped"))
    yield "expired", count_text(topic.get("messages_expired"))
    yield "subscribers", count_text(topic.get("subscribers"))
    depth, limit = topic.get("queue_depth"), topic.get("queue_max_size")
    yield "longest queue", f"{count_text(depth)} of {count_text(limit)} messages"
    latency = topic.get("latency_ms") or {}
    parts = (f"{name} {milliseconds_text(value)}" for name, value in latency.items())
    yield "delivered after", ", ".join(parts) or ABSENT
    yield "messages in memory", count_text(topic.get("ring_messages"))
    yield "in the log", yes_text(topic.get("kept"))
    yield "retained message", yes_text(topic.get("retained"))


def client_facts(client: Row) -> Pairs:
    """Facts about one client."""
    yield "client", text_of(client.get("client_id"))
    yield "user", text_of(client.get("user"))
    yield "door", door_text(client.get("door"))
    yield "address", text_of(client.get("address"))
    is_connected = client.get("connected")
    since = age_text(client.get("connected_at")).removesuffix(" ago")
    yield "connected", f"yes, for {since}" if is_connected else "no"
    if not is_connected:
        yield "disconnected", age_text(client.get("left_at"))
        yield "session ends", time_text(client.get("expires_at"))
    yield "session kept for", duration_text(client.get("expiry_s"))
    waiting = client.get("waiting_messages") or 0
    yield "waiting", f"{counted(waiting, 'message')}, {size_text(client.get('waiting_bytes'))}"
    yield "offline queue", counted(client.get("owed_messages") or 0, "message")
    yield "unacknowledged", counted(client.get("in_flight") or 0, "message")
    yield "slow", yes_text(client.get("is_slow"))
    for filter in client.get("filters") or ():
        yield "subscribed to", _subscription_text(filter)
    if will := client.get("will"):
        yield "will", text_of(will.get("topic") if isinstance(will, Mapping) else will)


def _subscription_text(filter: Row) -> str:
    options = [f"QoS {filter.get('qos')}"]
    options += ["no local"] if filter.get("no_local") else []
    options += [f"policy {filter['policy']}"] if filter.get("policy") else []
    return f"{text_of(filter.get('filter'))} ({', '.join(options)})"


def verdict_facts(verdict: Row) -> Pairs:
    """Facts about the message of a verdict; its sentence stands above them."""
    topic, sequence = text_of(verdict.get("topic")), count_text(verdict.get("sequence"))
    newest = verdict.get("newest")
    yield "message", f"{topic} {sequence}" + (f" (newest: {count_text(newest)})" if newest else "")
    if message := verdict.get("message"):
        sender, door = text_of(message.get("client_id")), door_text(message.get("door"))
        yield "published", f"{time_text(message.get('published_at'))} by {sender} over {door}"
        yield "sent with", f"QoS {message.get('qos')}" + (", retained" if message.get("retain") else "")
    for filter in verdict.get("filters") or ():
        yield "subscribed to", _subscription_text(filter) if isinstance(filter, Mapping) else text_of(filter)
    for waiting in verdict.get("waiting") or ():
        yield "waiting for", _waiting_text(waiting)
    if verdict.get("rows_forgotten"):
        yield "forgotten", f"{counted(verdict['rows_forgotten'], 'older row')} of the ledger"
    if verdict.get("truncated"):
        yield "note", "there is more than is shown; --client selects one subscriber"


def _waiting_text(waiting: object) -> str:
    if not isinstance(waiting, Mapping):
        return text_of(waiting)
    client, others = waiting.get("client_id"), {**waiting}
    others.pop("client_id", None)
    details = ", ".join(f"{name.replace('_', ' ')} {text_of(value)}" for name, value in others.items())
    return f"{text_of(client)} ({details})" if details else text_of(client)


def health_facts(state: Row) -> Pairs:
    """Facts about a server: its state, then with `--all` its figures by subject."""
    yield "status", text_of(state.get("status"))
    if "ready" in state:
        yield "accepts work", yes_text(state["ready"])
    yield "running for", duration_text(state.get("uptime_seconds"))
    if "round_trip_ms" in state:
        yield "responds within", milliseconds_text(state["round_trip_ms"])
    version, node = state.get("version"), state.get("node_id")
    if version is not None:
        build = f" ({state['build']})" if "build" in state else ""
        yield "server", f"Penstock {version}{build}, node {text_of(node)}"
    if "global" not in state and "topic_count" in state:
        yield "topics", count_text(state["topic_count"])
        yield "subscribers", count_text(state.get("active_subscriber_count"))
    yield from _log_facts(state.get("log") or {})
    for reason in state.get("parts") or state.get("reasons") or ():
        yield "reason", text_of(reason)
    yield from _figures(state)


def _log_facts(log: Row) -> Pairs:
    if not log:
        return
    words = [text_of(log.get("status")), "on disk" if log.get("durable") else "in memory"]
    if log.get("last_offset"):
        words.append(f"offsets {count_text(log.get('first_offset'))} to {count_text(log['last_offset'])}")
    if log.get("epoch"):
        words.append(f"epoch {log['epoch']}")
    yield "log", ", ".join(words)
    for name, value in log.items():
        if name not in ("status", "durable", "first_offset", "last_offset", "epoch"):
            yield f"log {name.replace('_', ' ')}", text_of(value)


def _figures(state: Row) -> Pairs:
    if figures := state.get("global"):
        yield (
            "messages",
            _list(
                (figures, "total_published", "published", count_text),
                (figures, "total_delivered", "delivered", count_text),
                (figures, "total_dropped", "not delivered", count_text),
                (figures, "total_expired", "expired", count_text),
            ),
        )
        yield "topics", count_text(figures.get("active_topics"))
        number, slow = figures.get("active_subscribers"), figures.get("slow_subscribers")
        yield "subscribers", f"{count_text(number)}, {count_text(slow)} of them slow"
        yield "filters", count_text(figures.get("filters"))
        yield "retained messages", count_text(figures.get("retained_messages"))
    if connections := state.get("connections"):
        doors = (f"{count_text(number)} {door_text(door)}" for door, number in connections.items())
        yield "connections", ", ".join(doors)
    if outboxes := state.get("outboxes"):
        yield (
            "queued for subscribers",
            _list(
                (outboxes, "messages", "messages", count_text),
                (outboxes, "bytes", "", size_text),
            ),
        )
        full = percent_text(outboxes.get("largest_saturation"))
        yield "fullest queue", f"{count_text(outboxes.get('largest_messages'))} messages, {full} of its limit"
        yield "blocked publishers", count_text(outboxes.get("publishers_held"))
    if process := state.get("process"):
        files = f"{count_text(process.get('open_files'))} of {count_text(process.get('max_files'))}"
        yield "memory", size_text(process.get("memory_bytes"))
        yield "CPU time", duration_text(process.get("cpu_seconds"))
        yield "open files", files
    if rings := state.get("rings"):
        used, limit = size_text(rings.get("bytes")), size_text(rings.get("limit_bytes"))
        yield "recent messages in memory", f"{used} of {limit}, {counted(rings.get('topics') or 0, 'topic')}"
    if cluster := state.get("cluster"):
        peers = cluster.get("peers") or 0
        yield "cluster", counted(peers, "peer") if cluster.get("cluster_mode") else "none"


def _list(*parts: tuple[Row, str, str, Callable[[Any], str]]) -> str:
    """Figures in one line: `1,000 published, 990 delivered`."""
    shown = (f"{as_text(row.get(key))} {noun}".strip() for row, key, noun, as_text in parts if key in row)
    return ", ".join(shown) or ABSENT
