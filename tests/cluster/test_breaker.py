"""Breaker and backoff: refusals at once, one probe a second, attempts from 0.1 to 5 s apart."""

from random import Random

import pytest

from penstock.cluster.breaker import Backoff, Breaker


def test_it_opens_after_five_failures_in_a_row() -> None:
    breaker = Breaker()
    for _ in range(4):
        breaker.on_failure(1.0)
    assert not breaker.is_open and breaker.admits(1.0)
    breaker.on_failure(1.0)
    assert breaker.is_open and not breaker.admits(1.0)


def test_a_success_in_between_starts_the_count_again() -> None:
    breaker = Breaker()
    for _ in range(20):
        for _ in range(4):
            breaker.on_failure(1.0)
        breaker.on_success()
    assert not breaker.is_open


def test_silence_opens_it_at_once() -> None:
    breaker = Breaker()
    breaker.on_silence(1.0)
    assert breaker.is_open and not breaker.admits(1.9)


def test_one_probe_is_admitted_each_second() -> None:
    breaker = Breaker()
    breaker.on_silence(0.0)
    admitted = [tenth for tenth in range(50) if breaker.admits(tenth / 10)]
    assert admitted == [10, 20, 30, 40]


def test_further_failures_do_not_delay_the_probe() -> None:
    breaker = Breaker()
    breaker.on_silence(0.0)
    breaker.on_failure(0.9)
    breaker.on_silence(0.9)
    assert breaker.admits(1.0)


def test_a_success_closes_it() -> None:
    breaker = Breaker()
    breaker.on_silence(0.0)
    breaker.on_success()
    assert all(breaker.admits(0.0) for _ in range(10))


@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999])
def test_delays_double_between_their_limits(chance: float) -> None:
    backoff = Backoff(lambda: chance)
    delays = [backoff.next_delay() for _ in range(12)]
    assert all(0.1 <= delay <= 5.0 for delay in delays)
    assert delays == sorted(delays)
    assert delays[-1] == pytest.approx(5.0 * (1 + chance) / 2)
    backoff.reset()
    assert backoff.next_delay() == delays[0]


def test_peers_do_not_come_back_at_the_same_moment() -> None:
    delays = set()
    for seed in range(100):
        backoff = Backoff(Random(seed).random)
        delays.add([backoff.next_delay() for _ in range(8)][-1])
    assert len(delays) == 100 and max(delays) - min(delays) > 2.0
