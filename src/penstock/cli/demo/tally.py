"""What the programs of the plant count themselves, to be compared with what the server counts."""

from collections import Counter

from msgspec import Struct, field

from penstock.cli.demo.plant import MACHINES

Key = tuple[str, int]
"""What names a message: its topic, and its sequence there."""

DOORS = {
    "mqtt": f"MQTT: sensors of {len(MACHINES)} machines",
    "sidecar": "gRPC: line controller",
    "web": "WebSocket: maintenance page",
    "streams": "HTTP long poll: work orders",
}
"""Who comes in at which door, by the name that the server has for the door."""


class Tally(Struct):
    """Counts of one run."""

    published: Counter[str] = field(default_factory=Counter)
    """By door: messages that the server has acknowledged."""
    orders: Counter[str] = field(default_factory=Counter)
    """By worker: work orders that it got."""
    historian: list[Key] = field(default_factory=list)
    """What the historian has read at the first door."""
    cursor: str = ""
    """Behind the last of these."""
