"""What happened so far, as plain integers: adding to one costs nothing that matters.

Rendering them (Prometheus, JSON, $SYS) is telemetry's work.
"""


class Counters:
    """Totals since start."""

    __slots__ = (
        "bytes_received",
        "bytes_sent",
        "connections",
        "connections_refused",
        "delivered",
        "packets_received",
        "publishes_refused",
        "sessions_expired",
        "takeovers",
        "wire_errors",
    )

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)

    bytes_received: int
    bytes_sent: int
    connections: int
    connections_refused: int
    delivered: int
    packets_received: int
    publishes_refused: int
    sessions_expired: int
    takeovers: int
    wire_errors: int

    def snapshot(self) -> dict[str, int]:
        """All totals by name."""
        return {name: getattr(self, name) for name in self.__slots__}
