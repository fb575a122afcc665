"""What happened so far, as plain integers: adding to one costs nothing that matters.

There are only totals: how many there are of something now is the difference of two of them. Rendering
them is the work of others: `reporting.py` for $SYS, telemetry for Prometheus and JSON.
"""


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
        "delivered",
        "disconnections",
        "malformed_packets",
        "published",
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

    actions_forbidden: int
    """What clients wanted and have no right to: to publish, to subscribe, to leave a will."""
    authentications_failed: int
    bytes_received: int
    bytes_sent: int
    connections: int
    connections_refused: int
    control_packets_received: int
    control_packets_sent: int
    """Packets that carry no message."""
    delivered: int
    disconnections: int
    """Sessions that lost their connection, one for each of `connections` that is over."""
    malformed_packets: int
    """Those among `wire_errors` that could not even be parsed."""
    published: int
    """Messages of clients that were accepted."""
    publishes_refused: int
    sessions_expired: int
    subscriptions_added: int
    subscriptions_removed: int
    takeovers: int
    wire_errors: int

    def snapshot(self) -> dict[str, int]:
        """All totals by name."""
        return {name: getattr(self, name) for name in self.__slots__}
