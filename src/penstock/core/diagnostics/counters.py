"""Totals since start, as plain integers.

A current number is the difference of two totals. `sys_topics.py` and telemetry render them.
"""

from penstock.model import Door, Shape

OWN = Door.SERVER
"""The door of the server's own messages; to find it by its name takes longer than to count."""


class Counters:
    """Totals since start."""

    __slots__ = (
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

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)
        self.published_at = dict.fromkeys(Door, 0)
        self.delivered_at = dict.fromkeys(Door, 0)

    actions_forbidden: int
    """Refused publishes, subscriptions and wills of clients without the right."""
    authentications_failed: int
    bytes_received: int
    bytes_sent: int
    connections: int
    connections_refused: int
    control_packets_received: int
    control_packets_sent: int
    """Packets that carry no message."""
    delivered_at: dict[Door, int]
    """Delivered messages by the door of their subscribers; the server's own are counted apart."""
    disconnections: int
    """Sessions that lost their connection, one for each of `connections` that is over."""
    malformed_packets: int
    """Those among `wire_errors` that could not even be parsed."""
    published_at: dict[Door, int]
    """Messages of clients that were accepted, by the door they came in at."""
    publishes_refused: int
    sessions_expired: int
    subscriptions_added: int
    subscriptions_removed: int
    takeovers: int
    wire_errors: int

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
        names = (name.removesuffix("_at") for name in self.__slots__)
        return {name: getattr(self, name) for name in names}


def way_out(shape: Shape, door: Door) -> Door:
    """Return the door that a delivery counts for."""
    return OWN if shape.door is OWN else door
