"""Settings of the metrics."""

from typing import Annotated

from msgspec import Meta, Struct


class MetricsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Metrics at `/metrics`."""

    topics: Annotated[int, Meta(ge=0, le=1000)] = 100
    """Topics with a label of their own in Prometheus' format; all others are summed up under one label."""
    json_topics: Annotated[int, Meta(ge=0, le=100_000)] = 10_000
    """Topics listed in JSON, the busiest first; the others are only counted."""
    nexusd_names: bool = False
    """Also export metrics in Prometheus' format under NexusD's names."""
    mqtt_names: bool = False
    """Also export metrics in Prometheus' format under the names of the Absmach MQTT broker."""
