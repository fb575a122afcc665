"""Password checks: fair between addresses, bounded, cancelled with their clients, refused in time."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from penstock.errors import QuotaExceeded
from penstock.net import password_checks
from penstock.net.address_limits import AddressLimits, AddressLimitSettings
from penstock.net.password_checks import PER_ADDRESS_AT_ONCE, PasswordChecks, RefusedChecks, TooManyWaiting
from tests.net.slow_access import SlowAccess, has_begun
from tests.support.clock import ManualClock
from tests.support.waiting import until

GREEDY, MODEST = "192.0.2.1", "192.0.2.2"
UNLIMITED = AddressLimitSettings(failures_per_address=0)


class Checks:
    """Checks whose verdicts a test decides, and the order in which they begin."""

    def __init__(self, limits: AddressLimitSettings = UNLIMITED, **options: float) -> None:
        self.access = SlowAccess()
        self.clock = ManualClock()
        self.limits = AddressLimits(limits, self.clock)
        loop = asyncio.get_running_loop()
        self.checks = PasswordChecks(self.access, loop, self.limits, **options)  # type: ignore[arg-type]
        self.tasks: list[asyncio.Task[bool]] = []

    async def ask(self, host: str, *users: str) -> list["asyncio.Task[bool]"]:
        """One request for each user, in this order."""
        tasks = [asyncio.create_task(self.checks.verify(user, b"x", host)) for user in users]
        self.tasks += tasks
        await asyncio.sleep(0)
        return tasks

    async def close(self) -> None:
        self.access.may_end.set()
        self.checks.close()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture
async def making() -> AsyncIterator[list[Checks]]:
    made: list[Checks] = []
    yield made
    for each in made:
        await each.close()


def numbered(count: int, name: str = "user") -> list[str]:
    return [f"{name}-{number}" for number in range(count)]


async def test_another_address_waits_for_one_check_and_not_for_all_of_a_flood(making: list[Checks]) -> None:
    making.append(made := Checks(at_once=1))
    await made.ask(GREEDY, *numbered(50))
    await made.ask(MODEST, "alice")
    await made.ask(MODEST, "bob")
    made.access.may_end.set()
    await asyncio.gather(*made.tasks)
    begun = made.access.users
    assert begun.index("alice") <= 2  # after the one that ran already, and one more
    assert begun.index("bob") <= 4
    assert [user for user in begun if user in numbered(50)] == numbered(50)


async def test_a_flood_leaves_threads_to_other_addresses(making: list[Checks]) -> None:
    making.append(made := Checks())
    await made.ask(GREEDY, *numbered(50))
    assert made.checks.running == PER_ADDRESS_AT_ONCE
    await made.ask(MODEST, "alice")
    assert made.checks.running == PER_ADDRESS_AT_ONCE + 1
    for _ in range(PER_ADDRESS_AT_ONCE + 1):
        await has_begun(made.access)
    assert made.access.users[-1] == "alice"


async def test_a_full_queue_drops_the_newest_of_the_address_with_most(making: list[Checks]) -> None:
    making.append(made := Checks(limit=10))
    flood = await made.ask(GREEDY, *numbered(PER_ADDRESS_AT_ONCE + 10))
    (late,) = await made.ask(GREEDY, "one too many")
    with pytest.raises(TooManyWaiting):
        await late
    others = await made.ask(MODEST, *numbered(PER_ADDRESS_AT_ONCE + 5, "other"))
    assert made.checks.waiting == 10
    (refused,) = await made.ask(MODEST, "as many as the others")
    with pytest.raises(TooManyWaiting):
        await refused
    made.access.may_end.set()
    assert await asyncio.gather(*others) == [True] * (PER_ADDRESS_AT_ONCE + 5)
    results = await asyncio.gather(*flood, return_exceptions=True)
    assert [result is True for result in results] == [True] * (PER_ADDRESS_AT_ONCE + 5) + [False] * 5
    assert made.checks.refused == {"busy": 7, "late": 0, "failures": 0}
    assert (made.checks.waiting, made.checks.running) == (0, 0)


async def test_a_check_that_nobody_waits_for_is_not_done(making: list[Checks]) -> None:
    making.append(made := Checks())
    running = await made.ask(GREEDY, *numbered(PER_ADDRESS_AT_ONCE))
    first, second = await made.ask(GREEDY, "gone", "gone")
    assert made.checks.waiting == 1  # equal credentials share a check
    first.cancel()
    await asyncio.sleep(0)
    assert made.checks.waiting == 1
    second.cancel()
    await until(lambda: not made.checks.waiting, "the check still waits")
    made.access.may_end.set()
    assert await asyncio.gather(*running) == [True] * PER_ADDRESS_AT_ONCE
    assert "gone" not in made.access.users


async def test_a_running_check_serves_whoever_asks_next(making: list[Checks]) -> None:
    making.append(made := Checks())
    (gone,) = await made.ask(GREEDY, "alice")
    await has_begun(made.access)
    gone.cancel()
    await asyncio.sleep(0)
    (back,) = await made.ask(GREEDY, "alice")
    made.access.may_end.set()
    assert await back
    assert made.access.checks == 1


async def test_equal_credentials_of_another_address_do_not_wait_with_a_flood(making: list[Checks]) -> None:
    making.append(made := Checks(at_once=1))
    await made.ask(GREEDY, *numbered(20), "alice")
    await made.ask(MODEST, "alice")
    made.access.may_end.set()
    await asyncio.gather(*made.tasks)
    assert made.access.users.index("alice") <= 2


async def test_a_check_whose_turn_does_not_come_in_time_is_refused(making: list[Checks]) -> None:
    making.append(made := Checks(timeout_s=0.01))
    running = await made.ask(GREEDY, *numbered(PER_ADDRESS_AT_ONCE))
    (late,) = await made.ask(GREEDY, "late")
    with pytest.raises(TooManyWaiting):
        await late
    made.access.may_end.set()  # what has begun is not late
    assert await asyncio.gather(*running) == [True] * PER_ADDRESS_AT_ONCE
    assert made.checks.refused["late"] == 1


async def test_wrong_passwords_count_when_they_are_checked(making: list[Checks]) -> None:
    settings = AddressLimitSettings(failures_per_address=1, failure_burst_per_address=3)
    making.append(made := Checks(settings, at_once=1))
    made.access.is_good = False
    made.access.may_end.set()
    flood = await made.ask(GREEDY, *numbered(10))
    results = await asyncio.gather(*flood, return_exceptions=True)
    assert results[:3] == [False] * 3
    assert all(isinstance(result, QuotaExceeded) for result in results[3:])
    assert made.access.checks == 3
    (refused,) = await made.ask(GREEDY, "at once")
    with pytest.raises(QuotaExceeded):
        await refused
    (other,) = await made.ask(MODEST, "other")
    assert not await other  # checked: it is another address
    made.clock.advance(1)
    (tried,) = await made.ask(GREEDY, "later")
    assert not await tried
    assert made.checks.refused == {"busy": 0, "late": 0, "failures": 8}


async def test_right_passwords_count_for_nothing_however_many_come_at_once(making: list[Checks]) -> None:
    settings = AddressLimitSettings(failures_per_address=0.001, failure_burst_per_address=4)
    making.append(made := Checks(settings))
    herd = await made.ask(GREEDY, *numbered(30))
    made.access.may_end.set()
    assert await asyncio.gather(*herd) == [True] * 30


async def test_what_is_known_by_the_time_of_its_turn_needs_no_thread(making: list[Checks]) -> None:
    making.append(made := Checks(at_once=1))
    first, second = await made.ask(GREEDY, "first", "known")
    made.access.known.add("known")
    made.access.may_end.set()
    assert [await first, await second] == [True, True]
    assert made.access.users == ["first"]


async def test_refused_checks_are_reported_once_in_a_while(
    making: list[Checks], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(password_checks, "REPORT_INTERVAL_S", 0.0)
    making.append(made := Checks(limit=1))
    assert made.checks.take_refused() is None
    flood = await made.ask(GREEDY, *numbered(PER_ADDRESS_AT_ONCE + 3))
    await asyncio.wait(flood[-2:])
    assert made.checks.take_refused() == RefusedChecks(2, 0, 0, GREEDY, 2)
    assert made.checks.take_refused() is None
    monkeypatch.setattr(password_checks, "REPORT_INTERVAL_S", 1_000.0)
    await asyncio.wait(await made.ask(GREEDY, "another"))
    assert made.checks.take_refused() is None


async def test_whoever_waits_when_the_checks_end_is_refused(making: list[Checks]) -> None:
    making.append(made := Checks())
    tasks = await made.ask(GREEDY, *numbered(PER_ADDRESS_AT_ONCE + 1))
    made.checks.close()
    made.checks.close()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, TooManyWaiting) for result in results)
    (late,) = await made.ask(GREEDY, "late")
    with pytest.raises(TooManyWaiting):
        await late
