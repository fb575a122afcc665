"""What is told of the server's figures, and how much of it."""

from typing import Annotated

from msgspec import Meta, Struct


class MetricsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The figures at `/metrics`."""

    topics: Annotated[int, Meta(ge=0, le=1000)] = 100
    """Topics that have a label of their own in Prometheus' format; all others are summed up as one."""
    json_topics: Annotated[int, Meta(ge=0, le=100_000)] = 10_000
    """Topics that are listed as JSON, those with most messages first; the others are only counted."""
    nexusd_names: bool = False
    """Whether figures are also told in Prometheus' format under the names that NexusD has for them."""
    mqtt_names: bool = False
    """Whether figures are also told in Prometheus' format under the names that Absmach has for them."""
