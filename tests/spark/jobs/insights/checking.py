"""Compares what tables say with the messages that they are about."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from penstock.lake import bucket_of
from penstock.spark.jobs.insights.windows import DROPS_TOPIC
from tests.spark.jobs.insights.samples import SECONDS, Sample, by_window, percentile

Row = dict[str, Any]
Window = tuple[str, datetime]

SHARES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
HOT_TOPICS, BUCKETS = 2, 4
"""What the job is told."""


def check_tables(tables: Mapping[str, list[Row]], samples: Sequence[Sample], until: datetime) -> None:
    """Look at every row: there are those of all windows that end at a time or before, and no others."""
    messages = [sample for sample in samples if sample.topic != DROPS_TOPIC]
    windows = _over(messages, until)
    topics, prefixes = _keyed(tables["topics"], "topic"), _keyed(tables["prefixes"], "prefix")
    clients, hot = _keyed(tables["clients"], "client_id"), _keyed(tables["hot"], "rank")
    balance = _keyed(tables["balance"])
    for window, found in windows:
        for topic in {sample.topic for sample in found}:
            _check_topic(topics.pop((window, topic)), found, messages)
        for prefix in {_prefix_of(sample) for sample in found}:
            _check_prefix(prefixes.pop((window, prefix)), found, tables["topics"])
        for client_id, count in Counter(sample.client_id for sample in found).items():
            assert clients.pop((window, client_id))["messages"] == count
        rank_rows = sorted(Counter(sample.topic for sample in found).values(), reverse=True)[:HOT_TOPICS]
        for rank, count in enumerate(rank_rows, 1):
            row = hot.pop((window, rank))
            assert (row["messages"], row["share"]) == (count, count / len(found))
        _check_balance(balance.pop((window,)), found)
    assert (topics, prefixes, clients, hot, balance) == ({}, {}, {}, {}, {})
    _check_drops(_keyed(tables["drops"], "reason"), samples, until)


def _over(samples: Sequence[Sample], until: datetime) -> list[tuple[Window, list[Sample]]]:
    return [
        ((grain, start), found)
        for grain, seconds in SECONDS.items()
        for start, found in by_window(samples, grain).items()
        if start + timedelta(seconds=seconds) <= until
    ]


def _keyed(rows: Sequence[Row], *names: str) -> dict[Any, Row]:
    """Rows by their window and these columns; no two have the same."""
    found = {((row["grain"], row["window_start"]), *(row[name] for name in names)): row for row in rows}
    assert len(found) == len(rows)
    for row in rows:
        assert row["window_end"] - row["window_start"] == timedelta(seconds=SECONDS[row["grain"]])
        assert row["date"] == row["window_start"].date()
        assert (
            row["messages_per_s"] == row["messages"] / SECONDS[row["grain"]] if "messages_per_s" in row else 1
        )
    return found


def _prefix_of(sample: Sample) -> str:
    return sample.topic.split("/")[0]


def _is_close(found: float, true: float) -> bool:
    return abs(found - true) <= 0.1 * true + 1


def _check_topic(row: Row, found: Sequence[Sample], messages: Sequence[Sample]) -> None:
    samples = [each for each in found if each.topic == row["topic"]]
    _check_measures(row, samples)
    first, last = samples[0].sequence, samples[-1].sequence
    assert (row["first_sequence"], row["last_sequence"]) == (first, last)
    assert row["missing"] == last - first + 1 - len(samples)
    before = [each.sequence for each in messages if each.topic == row["topic"] and each.sequence < first]
    assert row["missing_before"] == (first - max(before) - 1 if before else 0)


def _check_measures(row: Row, samples: Sequence[Sample]) -> None:
    sizes = [sample.size for sample in samples]
    latencies = [sample.latency_us for sample in samples if sample.latency_us is not None]
    assert (row["messages"], row["bytes"]) == (len(samples), sum(sizes))
    assert row["bytes_per_s"] == sum(sizes) / SECONDS[row["grain"]]
    assert (row["min_bytes"], row["max_bytes"]) == (min(sizes), max(sizes))
    assert sum(dict(row["size_histogram"]).values()) == len(samples)
    assert sum(dict(row["latency_histogram"]).values()) == len(latencies)
    for name, share in SHARES:
        assert _is_close(row[f"bytes_{name}"], percentile(sizes, share))
        told = row[f"latency_{name}_ms"]
        assert _is_close(told * 1000, percentile(latencies, share)) if latencies else told is None


def _check_prefix(row: Row, found: Sequence[Sample], topics: Sequence[Row]) -> None:
    own = [sample for sample in found if _prefix_of(sample) == row["prefix"]]
    names = {sample.topic for sample in own}
    _check_measures(row, own)
    assert row["topics"] == len(names)
    window = row["grain"], row["window_start"]
    rows = [
        each for each in topics if (each["grain"], each["window_start"]) == window and each["topic"] in names
    ]
    assert row["missing"] == sum(each["missing"] + each["missing_before"] for each in rows)


def _check_balance(row: Row, found: Sequence[Sample]) -> None:
    filled = Counter(bucket_of(sample.topic, BUCKETS) for sample in found)
    sizes: Counter[int] = Counter()
    for sample in found:
        sizes[bucket_of(sample.topic, BUCKETS)] += sample.size
    assert (row["buckets"], row["messages"], row["bytes"]) == (BUCKETS, len(found), sum(sizes.values()))
    assert row["largest_messages"] == max(filled.values()) == filled[row["largest_bucket"]]
    assert row["messages_imbalance"] == pytest.approx(max(filled.values()) / (len(found) / BUCKETS))
    assert row["bytes_imbalance"] == pytest.approx(max(sizes.values()) / (sum(sizes.values()) / BUCKETS))


def _check_drops(found: dict[Any, Row], samples: Sequence[Sample], until: datetime) -> None:
    counts: Counter[tuple[Window, str]] = Counter()
    for window, news in _over([sample for sample in samples if sample.topic == DROPS_TOPIC], until):
        for sample in news:
            counts[window, "expired"] += round(sample.at_s * 10) + 1
            counts[window, "failed"] += 2
    assert {key: row["messages"] for key, row in found.items()} == counts
