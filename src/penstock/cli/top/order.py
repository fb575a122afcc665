"""By what the topics of `penstock top` are sorted."""

from enum import StrEnum


class Order(StrEnum):
    """A column; the largest come first, names in their own order."""

    PUBLISHED = "published"
    DELIVERED = "delivered"
    DROPPED = "dropped"
    DEPTH = "depth"
    LATENCY = "latency"
    NAME = "name"
