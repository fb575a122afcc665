"""Totals since start, as plain integers.

A current number is the difference of two totals. `sys_topics.py` and telemetry render them.
"""

from penstock.model import Door
from penstock.runs import Shape

OWN = Door.SERVER
"""The door of the server's own messages; to find it by its name takes longer than to count."""


_NAMES = (
    "actions_forbidden",
    "authentications_failed",
    "bytes_received",
    "bytes_sent",
    "connections",
    "connections_refused",
    "control_packets_received",
    "control_packets_sent",
    "delivered_at",
    "disconnections",
    "malformed_packets",
    "published_at",
    "publishes_refused",
    "sessions_expired",
    "subscriptions_added",
    "subscriptions_removed",
    "takeovers",
    "wire_errors",
)


class Counters:
    """Totals since start."""

    __slots__ = _NAMES

    def __init__(self) -> None:
        self.actions_forbidden = 0
        """Refused publishes, subscriptions and wills of clients without the right."""
        self.authentications_failed = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self.connections = 0
        self.connections_refused = 0
        self.control_packets_received = 0
        self.control_packets_sent = 0
        """Packets that carry no message."""
        self.delivered_at = dict.fromkeys(Door, 0)
        """Delivered messages by the door of their subscribers; the server's own are counted apart."""
        self.disconnections = 0
        """Sessions that lost their connection, one for each of `connections` that is over."""
        self.malformed_packets = 0
        """Those among `wire_errors` that could not even be parsed."""
        self.published_at = dict.fromkeys(Door, 0)
        """Messages of clients that were accepted, by the door they came in at."""
        self.publishes_refused = 0
        self.sessions_expired = 0
        self.subscriptions_added = 0
        self.subscriptions_removed = 0
        self.takeovers = 0
        self.wire_errors = 0

    @property
    def published(self) -> int:
        """Messages of clients that were accepted."""
        return sum(self.published_at.values())

    @property
    def delivered(self) -> int:
        """Delivered messages, once per subscriber, the server's own included."""
        return sum(self.delivered_at.values())

    def snapshot(self) -> dict[str, int]:
        """All totals by name."""
        names = [name.removesuffix("_at") for name in _NAMES]
        return {name: getattr(self, name) for name in names}


def way_out(shape: Shape, door: Door) -> Door:
    """Return the door that a delivery counts for."""
    return OWN if shape.door is OWN else door
