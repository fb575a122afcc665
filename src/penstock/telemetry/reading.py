"""One look at all figures, for the names of Prometheus: what they have in common is looked up once."""

from collections.abc import Iterator

from msgspec import Struct

from penstock.core.ledger import LOSSES
from penstock.core.registry import Loss
from penstock.telemetry.families import Rows
from penstock.telemetry.figures import Figures, Rings, Waiting, expired_of
from penstock.telemetry.labels import Sums
from penstock.telemetry.process import Process, look

NO_POLICY = ""
"""The label of what was lost for a reason that no policy decides about."""


class Reading(Struct):
    """What was found in one turn of the loop."""

    figures: Figures
    topics: dict[str, Sums]
    waiting: Waiting
    rings: list[Rings]
    process: Process

    def by_topic(self, key: str) -> Rows:
        """A number of each topic that has a label, and of all others."""
        return (((topic,), sums[key]) for topic, sums in self.topics.items())

    def dropped(self) -> Rows:
        """What was lost, by topic, reason and policy."""
        for topic, sums in self.topics.items():
            for loss, count in sums.items():
                if isinstance(loss, tuple) and loss[0] in LOSSES and count:
                    yield (topic, *_words(loss)), count

    def expired(self) -> Iterator[tuple[tuple[str], float]]:
        """What has expired, by topic."""
        for topic, sums in self.topics.items():
            yield (topic,), expired_of(sums)


async def read(figures: Figures) -> Reading:
    """Look at everything. Only what may be much is looked at in slices, before the rest."""
    await figures.labels.give()
    waiting = await figures.waiting()
    return Reading(figures, figures.labels.sums(figures.total()), waiting, list(figures.rings()), look())


def _words(loss: Loss) -> tuple[str, str]:
    reason, policy = loss
    return str(reason), NO_POLICY if policy is None else str(policy)
