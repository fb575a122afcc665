"""Limits for one address: who counts together, what is refused, and that strangers cannot fill the memory."""

from collections import Counter

import msgspec
import pytest

from penstock.net import address_limits
from penstock.net.address_limits import AddressLimits, AddressLimitSettings, Refusals, Verdict, network_of
from tests.support.clock import ManualClock

ADMITTED, TOO_MANY, TOO_FAST = Verdict


def make_guard(**settings: float) -> tuple[ManualClock, AddressLimits]:
    clock = ManualClock()
    return clock, AddressLimits(msgspec.convert(settings, AddressLimitSettings), clock)


def verdicts(limits: AddressLimits, host: str, times: int) -> Counter[Verdict]:
    return Counter(limits.enter(host) for _ in range(times))


# Addresses


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::FFFF:c000:0207", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:DB8:1:2::9", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::9", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", ""),
        ("no:address", "no:address"),
        ("a.name", "a.name"),
    ],
)
def test_an_address_counts_by_what_its_owner_cannot_change(host: str, network: str) -> None:
    assert network_of(host) == network


def test_neighbours_in_one_ipv6_network_share_their_limit() -> None:
    _, limits = make_guard(per_address=2)
    assert limits.enter("2001:db8::1") is ADMITTED
    assert limits.enter("2001:db8::2") is ADMITTED
    assert limits.enter("2001:db8::3") is TOO_MANY
    assert limits.enter("2001:db8:0:1::1") is ADMITTED
    limits.leave("2001:db8::2")
    assert limits.enter("2001:db8::4") is ADMITTED


# At the same time


def test_an_address_may_have_so_many_connections_and_no_more() -> None:
    _, limits = make_guard(per_address=3)
    assert verdicts(limits, "192.0.2.1", 5) == {ADMITTED: 3, TOO_MANY: 2}
    assert verdicts(limits, "192.0.2.2", 3) == {ADMITTED: 3}


def test_who_leaves_makes_room_for_one() -> None:
    _, limits = make_guard(per_address=2)
    verdicts(limits, "192.0.2.1", 4)
    limits.leave("::ffff:192.0.2.1")
    assert verdicts(limits, "192.0.2.1", 3) == {ADMITTED: 1, TOO_MANY: 2}


def test_who_was_never_there_leaves_nothing_behind() -> None:
    _, limits = make_guard(per_address=1)
    limits.leave("192.0.2.1")
    assert verdicts(limits, "192.0.2.1", 2) == {ADMITTED: 1, TOO_MANY: 1}


# New ones


def test_an_address_may_come_in_a_burst_and_then_at_its_rate() -> None:
    clock, limits = make_guard(rate_per_address=2, burst_per_address=4)
    assert verdicts(limits, "192.0.2.1", 6) == {ADMITTED: 4, TOO_FAST: 2}
    clock.advance(1.5)
    assert verdicts(limits, "192.0.2.1", 6) == {ADMITTED: 3, TOO_FAST: 3}
    assert verdicts(limits, "192.0.2.2", 4) == {ADMITTED: 4}


def test_leaving_does_not_make_an_address_slower() -> None:
    _, limits = make_guard(rate_per_address=1, burst_per_address=2)
    for _ in range(2):
        assert limits.enter("192.0.2.1") is ADMITTED
        limits.leave("192.0.2.1")
    assert limits.enter("192.0.2.1") is TOO_FAST


def test_both_limits_hold_together() -> None:
    clock, limits = make_guard(per_address=5, rate_per_address=1, burst_per_address=3)
    assert verdicts(limits, "192.0.2.1", 4) == {ADMITTED: 3, TOO_FAST: 1}
    clock.advance(10)
    assert verdicts(limits, "192.0.2.1", 3) == {ADMITTED: 2, TOO_MANY: 1}


def test_who_was_refused_is_not_counted_as_there() -> None:
    clock, limits = make_guard(per_address=2, rate_per_address=1, burst_per_address=1)
    assert verdicts(limits, "192.0.2.1", 9) == {ADMITTED: 1, TOO_FAST: 8}
    clock.advance(1)
    assert limits.enter("192.0.2.1") is ADMITTED


# Without limits


def test_without_limits_nobody_needs_to_ask_and_everyone_may_come() -> None:
    _, limits = make_guard(per_address=0, rate_per_address=0)
    assert not limits.is_needed
    assert verdicts(limits, "192.0.2.1", 1_000) == {ADMITTED: 1_000}
    assert limits.reap() is None


def test_no_limit_is_set_unless_somebody_asks_for_it() -> None:
    assert not make_guard()[1].is_needed
    _, limits = make_guard(rate_per_address=1)
    assert verdicts(limits, "192.0.2.1", 101) == {ADMITTED: 100, TOO_FAST: 1}


@pytest.mark.parametrize("limit", ["per_address", "rate_per_address"])
def test_one_limit_is_enough_to_be_needed(limit: str) -> None:
    assert make_guard(**{limit: 1})[1].is_needed


@pytest.mark.parametrize(
    "settings",
    [{"per_address": -1}, {"rate_per_address": -0.5}, {"burst_per_address": 0}, {"per_adress": 1}],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(settings, AddressLimitSettings)


# What is told


def test_refusals_are_told_with_their_count_and_the_worst() -> None:
    _, limits = make_guard(per_address=2, rate_per_address=1, burst_per_address=4)
    verdicts(limits, "192.0.2.1", 5)
    for host in ["2001:db8::1"] * 4 + ["192.0.2.3"] * 2:
        if limits.enter(host) is ADMITTED:
            limits.leave(host)
    for _ in range(6):
        if limits.enter("2001:db8::2") is ADMITTED:
            limits.leave("2001:db8::2")
    assert limits.reap() == Refusals(too_many=3, too_fast=6, worst="2001:db8::/64", worst_count=6)


def test_refusals_are_told_once_and_at_most_once_a_second() -> None:
    clock, limits = make_guard(per_address=1)
    told = []
    for _ in range(40):
        verdicts(limits, "192.0.2.1", 10)
        told.append(limits.reap())
        clock.advance(0.125)
    counts = [refusals.too_many for refusals in told if refusals is not None]
    assert len(counts) == 5
    assert counts == [9, 80, 80, 80, 80]
    clock.advance(1)
    refusals = limits.reap()
    assert refusals is not None
    assert refusals.too_many + sum(counts) == 40 * 10 - 1
    clock.advance(1)
    assert limits.reap() is None


def test_the_worst_is_found_among_more_addresses_than_are_remembered() -> None:
    _, limits = make_guard(per_address=1)
    verdicts(limits, "192.0.2.1", 5)
    hosts = [
        f"10.0.{number >> 8}.{number & 255}" for number in range(address_limits.REFUSED_REMEMBERED + 100)
    ]
    for host in hosts:
        verdicts(limits, host, 2)
    assert len(limits._refused) == address_limits.REFUSED_REMEMBERED
    assert limits.reap() == Refusals(4 + len(hosts), 0, "192.0.2.1", 4)


# Passwords


def tries(limits: AddressLimits, host: str, times: int) -> int:
    return sum(limits.may_try(host) for _ in range(times))


def test_an_address_may_be_wrong_in_a_burst_and_then_at_its_rate() -> None:
    clock, limits = make_guard(failures_per_address=0.5, failure_burst_per_address=4)
    assert tries(limits, "192.0.2.1", 9) == 4
    assert tries(limits, "192.0.2.2", 9) == 4
    clock.advance(4)
    assert tries(limits, "192.0.2.1", 9) == 2
    assert tries(limits, "2001:db8::1", 3) + tries(limits, "2001:db8::2", 3) == 4
    assert limits.reap() is None  # these are no connections


def test_what_turns_out_to_be_right_does_not_count() -> None:
    _, limits = make_guard(failures_per_address=0.5, failure_burst_per_address=2)
    for _ in range(10):
        assert limits.may_try("192.0.2.1")
        limits.forgive("192.0.2.1")
    assert tries(limits, "192.0.2.1", 9) == 2


def test_without_a_limit_everyone_may_be_wrong() -> None:
    _, limits = make_guard(failures_per_address=0)
    assert tries(limits, "192.0.2.1", 1_000) == 1_000
    limits.forgive("192.0.2.1")


def test_addresses_that_were_wrong_are_forgotten_in_time() -> None:
    clock, limits = make_guard(failures_per_address=1, failure_burst_per_address=2)
    for number in range(1_000):
        limits.may_try(f"10.0.{number >> 8}.{number & 255}")
    assert len(limits._failures) == 1_000
    clock.advance(1)
    for number in range(1_000):
        limits.may_try(f"10.1.{number >> 8}.{number & 255}")
    assert len(limits._failures) == 1_000


# Memory


def test_a_flood_of_addresses_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_limits, "ADDRESSES_REMEMBERED", 1_000)
    _, limits = make_guard(rate_per_address=1, burst_per_address=2)
    assert verdicts(limits, "192.0.2.1", 3) == {ADMITTED: 2, TOO_FAST: 1}
    for number in range(20_000):
        assert limits.enter(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}") is ADMITTED
        if number % 500 == 0:  # who goes on coming is not forgotten, however many others come
            assert limits.enter("192.0.2.1") is TOO_FAST
    assert len(limits._arrivals) == 1_000


def test_addresses_that_left_are_not_remembered() -> None:
    _, limits = make_guard(per_address=2)
    for number in range(1_000):
        limits.enter(f"10.0.{number >> 8}.{number & 255}")
    assert len(limits._open) == 1_000
    for number in range(1_000):
        limits.leave(f"10.0.{number >> 8}.{number & 255}")
    assert not limits._open


def test_addresses_that_stay_away_long_enough_are_forgotten() -> None:
    clock, limits = make_guard(rate_per_address=2, burst_per_address=10)
    verdicts(limits, "192.0.2.1", 10)
    verdicts(limits, "192.0.2.2", 4)
    clock.advance(4)
    limits.reap()
    assert verdicts(limits, "192.0.2.1", 10) == {ADMITTED: 8, TOO_FAST: 2}
    clock.advance(5)
    limits.reap()
    assert not limits._arrivals


def test_no_single_reaping_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_limits, "FORGOTTEN_AT_ONCE", 10)
    clock, limits = make_guard(rate_per_address=1)
    for number in range(25):
        limits.enter(f"10.0.0.{number}")
    clock.advance(1)
    left = [len(limits._arrivals) for _ in range(4) if limits.reap() is None]
    assert left == [15, 5, 0, 0]


# Other settings


def test_who_came_before_there_was_a_limit_is_neither_counted_nor_missed() -> None:
    limits = AddressLimits(AddressLimitSettings(), ManualClock())
    limits.configure(AddressLimitSettings(per_address=1))
    assert limits.enter("192.0.2.7") is ADMITTED
    assert limits.enter("192.0.2.7") is TOO_MANY


def test_who_came_under_another_limit_still_counts() -> None:
    limits = AddressLimits(AddressLimitSettings(rate_per_address=100), ManualClock())
    limits.enter("192.0.2.7")
    limits.enter("192.0.2.7")
    limits.configure(AddressLimitSettings(per_address=2))
    assert limits.enter("192.0.2.7") is TOO_MANY
    limits.configure(AddressLimitSettings())
    limits.leave("192.0.2.7")
    limits.configure(AddressLimitSettings(per_address=2))
    assert limits.enter("192.0.2.7") is ADMITTED
    assert limits.enter("192.0.2.7") is TOO_MANY


def test_the_same_settings_again_forgive_nobody() -> None:
    settings = AddressLimitSettings(failures_per_address=0.001, failure_burst_per_address=1)
    limits = AddressLimits(settings, ManualClock())
    assert limits.may_try("192.0.2.7")
    limits.configure(AddressLimitSettings(failures_per_address=0.001, failure_burst_per_address=1))
    assert not limits.may_try("192.0.2.7")
    limits.configure(AddressLimitSettings(failures_per_address=0.001, failure_burst_per_address=2))
    assert limits.may_try("192.0.2.7")
