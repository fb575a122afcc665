"""What the stories of telemetry share: a broker on a stage, its figures, and a reader of what is rendered."""

from collections.abc import Iterable

from prometheus_client.parser import text_string_to_metric_families

from penstock.core.settings import CoreSettings
from penstock.telemetry.figures import Figures
from penstock.telemetry.lag import LoopLag
from penstock.telemetry.prometheus import render_text
from penstock.telemetry.settings import MetricsSettings
from penstock.testing import Stage


class Door:
    """A door with two connections that tells figures of its own."""

    name = "http"
    connections = ("one", "two")

    def figures(self) -> dict[str, int]:
        return {"requests": 7, "responses_2xx": 5, "responses_4xx": 2, "connections": 2, "calls_OK": 4}


class Scene(Stage):
    """A stage whose figures can be looked at."""

    def __init__(self, core: CoreSettings | None = None, **metrics: object) -> None:
        super().__init__(core)
        settings = MetricsSettings(**metrics)  # type: ignore[arg-type]
        self.figures = Figures(
            self.broker, self.clock, settings, version="1.2", doors=[Door()], lag=LoopLag()
        )
        self.sender = self.client("sender")

    def publish(self, *names: str) -> None:
        """Publish one message to each topic named, each by itself."""
        for name in names:
            self.sender.publish(name, b"x")
            self.settle()

    async def read(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """All samples by name and labels."""
        return samples_of((await render_text(self.figures)).decode())

    async def by_topic(self, name: str) -> dict[str, float]:
        """The samples of one name by topic."""
        return {
            dict(labels)["topic"]: value
            for (found, labels), value in (await self.read()).items()
            if found == name
        }


def samples_of(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """All samples of Prometheus' text format; no two may be the same."""
    samples: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in samples, "told twice"
            samples[key] = sample.value
    return samples


def many(prefix: str, count: int) -> Iterable[str]:
    """As many names."""
    return (f"{prefix}{number:06}" for number in range(count))
