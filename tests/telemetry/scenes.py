"""Shared by the telemetry tests: a broker with metrics, and a parser of the rendered text."""

from collections.abc import Iterable

from prometheus_client.parser import text_string_to_metric_families

from penstock.core.settings import CoreSettings
from penstock.telemetry.metrics import ServerMetrics
from penstock.telemetry.prometheus import render_text
from penstock.telemetry.samples import LoopLag
from penstock.telemetry.settings import MetricsSettings
from tests.support.broker import Stage

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""Values by name and labels."""


class Door:
    """Door with two connections and counters of its own."""

    name = "http"
    connections = ("one", "two")

    def figures(self) -> dict[str, int]:
        return {"requests": 7, "responses_2xx": 5, "responses_4xx": 2, "connections": 2, "calls_OK": 4}


class Scene(Stage):
    """Test broker with metrics."""

    def __init__(self, core: CoreSettings | None = None, **metrics: object) -> None:
        super().__init__(core)
        settings = MetricsSettings(**metrics)  # type: ignore[arg-type]
        self.metrics = ServerMetrics(
            self.broker, self.clock, settings, version="1.2", doors=[Door()], lag=LoopLag()
        )
        self.sender = self.client("sender")

    def publish(self, *names: str) -> None:
        """Publish one message to each topic, in separate turns."""
        for name in names:
            self.sender.publish(name, b"x")
            self.settle()

    async def read(self) -> Samples:
        """All samples by name and labels."""
        return samples_of((await render_text(self.metrics)).decode())

    async def by_topic(self, name: str) -> dict[str, float]:
        """Samples of one name by topic."""
        return {
            dict(labels)["topic"]: value
            for (found, labels), value in (await self.read()).items()
            if found == name
        }


def samples_of(text: str) -> Samples:
    """All samples of Prometheus' text format; duplicates fail."""
    samples: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in samples, "duplicate sample"
            samples[key] = sample.value
    return samples


def many(prefix: str, count: int) -> Iterable[str]:
    """This many names."""
    return (f"{prefix}{number:06}" for number in range(count))
