"""Metrics history: rates, restarts and gaps."""

from datetime import timedelta

import pytest

from penstock.dashboard.poller import SAMPLES, TOPICS_REMEMBERED, History
from penstock.dashboard.responses import LogMetrics, Metrics
from tests.dashboard.samples import START, history, metrics, topic


def published(now: Metrics) -> float:
    return now.total.total_published


def test_there_is_no_rate_before_the_second_response() -> None:
    assert history((0, 10, 500)).rate(published) is None


def test_a_rate_is_a_mean_over_the_last_five_seconds() -> None:
    steady = history(*((second, 10 + second, 1_000 * (second < 3)) for second in range(3)))
    assert steady.rate(published) == 0
    rising = history((0, 10, 0), (1, 11, 100), (2, 12, 100), (3, 13, 100), (4, 14, 100), (5, 15, 200))
    assert rising.rate(published) == pytest.approx(40)
    later = history(*((second, 10 + second, 1_000 if second else 0) for second in range(10)))
    assert later.rate(published) == 0, "what was ten seconds ago is over"


def test_a_restart_begins_rates_anew() -> None:
    restarted = history((0, 100, 5_000), (1, 101, 5_100), (2, 0.5, 3))
    assert restarted.rate(published) is None
    restarted.add(3, START + timedelta(seconds=3), metrics(1.5, 13))
    assert restarted.rate(published) == pytest.approx(10)
    assert restarted.restarts() == [START + timedelta(seconds=2)]
    assert [point.value for point in restarted.rates(published)] == [None, 100, None, 10]
    assert [point.value for point in restarted.values(published)] == [5_000, 5_100, None, 13]


@pytest.mark.parametrize(
    "after",
    [
        metrics(0.5, 1),
        metrics(3.0, 1),
        metrics(31.0, 1, node_id="another"),
        metrics(31.0, 1, log=LogMetrics(epoch=2)),
    ],
    ids=["uptime fell", "uptime behind", "another node", "another epoch"],
)
def test_a_restart_shows_even_if_the_server_is_up_longer_than_it_was(after: Metrics) -> None:
    seen = history((0, 2.0, 7))
    seen.add(30, START, after)
    assert seen.restarts() == [START]


def test_a_late_response_is_not_a_restart() -> None:
    assert history((0, 100.0, 1), (6, 101.0, 2), (7, 107.0, 2)).restarts() == []


def test_a_pause_without_responses_is_a_gap() -> None:
    paused = history((0, 10, 0), (1, 11, 10), (61, 71, 1_000), (62, 72, 1_020))
    assert [point.value for point in paused.rates(published)] == [None, 10, None, 20]
    assert [point.value for point in paused.values(published)] == [0, 10, None, 1_020]


def test_the_oldest_samples_go_first() -> None:
    long = history(*((second, second, second) for second in range(SAMPLES + 5)))
    assert len(long) == SAMPLES
    assert next(iter(long)).metrics.total.total_published == 5


def test_only_the_newest_sample_has_all_topics() -> None:
    many = {f"topic-{number}": topic() for number in range(TOPICS_REMEMBERED + 50)}
    kept = History()
    for second in range(3):
        kept.add(second, START, metrics(second, topics=many))
    assert [len(sample.metrics.topics) for sample in kept] == [100, 100, 150]
    assert "topic-0" in next(iter(kept)).metrics.topics, "the busiest come first"


def test_a_copy_is_a_snapshot() -> None:
    growing = history((0, 1, 1))
    before = growing.copy()
    growing.add(1, START, metrics(2, 2))
    assert (len(before), len(growing)) == (1, 2)
