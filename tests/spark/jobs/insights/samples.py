"""Messages as the log has them, and what is true of them by plain counting."""

import json
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from msgspec import Struct

from penstock.spark.jobs.insights.windows import CELLS, DROPS_TOPIC

BEGIN = datetime(2026, 3, 1, 11, 58, 30, tzinfo=UTC)
"""When the samples begin: a while before an hour is over, and in the middle of a minute."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LOG_SCHEMA = (
    "topic string, sequence bigint, published_at timestamp, payload binary, client_id string, "
    "logged_at timestamp"
)
SECONDS = {"10s": 10, "1m": 60, "1h": 3600}


class Sample(Struct, frozen=True, kw_only=True):
    """One message."""

    at_s: float
    topic: str = "a"
    sequence: int = 1
    size: int = 100
    client_id: str = "c"
    latency_us: int | None = 2_000
    payload: bytes | None = None

    @property
    def time(self) -> datetime:
        """When it was published."""
        return BEGIN + timedelta(seconds=self.at_s)

    def row(self) -> tuple[Any, ...]:
        """As the log has it."""
        payload = b"x" * self.size if self.payload is None else self.payload
        logged = None if self.latency_us is None else self.time + timedelta(microseconds=self.latency_us)
        return self.topic, self.sequence, self.time, payload, self.client_id, logged


def drops(at_s: float, **counts: int) -> Sample:
    """What the server tells of messages that were not delivered, by reason."""
    rows = [
        {"topic": "a", "client_id": "slow", "reason": reason, "first": 1, "last": 9, "count": count}
        for reason, count in counts.items()
    ]
    return Sample(at_s=at_s, topic=DROPS_TOPIC, payload=json.dumps(rows).encode())


def busy_minutes(seconds: int) -> list[Sample]:
    """Messages of some topics in the order of their time; now and then a sequence is not there."""
    chance = random.Random(7)
    sequences = dict.fromkeys(("plant/a", "plant/b", "yard/c", "€/d"), 0)
    samples: list[Sample] = []
    for tenth in range(seconds * 10):
        topic = chance.choice(list(sequences))
        sequences[topic] += 1
        if chance.random() < 0.02:
            continue  # given, and not in the log
        samples.append(
            Sample(
                at_s=tenth / 10,
                topic=topic,
                sequence=sequences[topic],
                size=chance.randrange(0, 3_000),
                client_id=f"client {chance.randrange(3)}",
                latency_us=None if topic == "€/d" else chance.randrange(0, 50_000),
            )
        )
        if tenth % 170 == 0:
            samples.append(drops(tenth / 10, expired=tenth + 1, failed=2))
    return samples


def cells_of(samples: Iterable[Sample]) -> pa.Table:
    """The samples as cells, added up without any haste."""
    found: dict[tuple[Any, ...], list[Sample]] = defaultdict(list)
    for sample in samples:
        payload, is_news = sample.row()[3], sample.topic == DROPS_TOPIC
        key = (
            window_us(sample),
            sample.topic,
            sample.client_id,
            bucket(len(payload)),
            None if sample.latency_us is None else bucket(sample.latency_us),
            payload.decode(errors="replace") if is_news else None,
        )
        found[key].append(sample)
    rows = [dict(zip(CELLS.names, (*key, *measures_of(same)), strict=True)) for key, same in found.items()]
    return pa.Table.from_pylist(rows, CELLS)


def measures_of(samples: Sequence[Sample]) -> tuple[int | None, ...]:
    """What a cell says of its messages."""
    sizes = [len(sample.row()[3]) for sample in samples]
    latencies = [sample.latency_us for sample in samples if sample.latency_us is not None]
    sequences = [sample.sequence for sample in samples]
    least, most = (min(latencies), max(latencies)) if latencies else (None, None)
    return len(samples), sum(sizes), min(sizes), max(sizes), least, most, min(sequences), max(sequences)


def window_us(sample: Sample) -> int:
    """Where its window of ten seconds begins."""
    return int((sample.time - EPOCH) / timedelta(seconds=10)) * 10_000_000


def bucket(value: int) -> int:
    """The bucket of a number in a histogram."""
    return math.floor(4 * math.log2(max(value, 1)))


def by_window(samples: Iterable[Sample], grain: str) -> dict[datetime, list[Sample]]:
    """The samples by the start of their window."""
    found: dict[datetime, list[Sample]] = defaultdict(list)
    for sample in samples:
        start = sample.time.timestamp() // SECONDS[grain] * SECONDS[grain]
        found[datetime.fromtimestamp(start, UTC)].append(sample)
    return found


def percentile(values: Sequence[int], share: float) -> int:
    """The value that this share of all does not exceed."""
    return sorted(values)[math.ceil(len(values) * share) - 1]
