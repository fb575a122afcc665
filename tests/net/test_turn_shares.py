"""Shares of a turn: input that waits is worked off in later turns, fairly, and newcomers are served first."""

import asyncio

from penstock.app import Server
from penstock.config import load
from penstock.net.turn_shares import LEAST_WORK, LONG_STEP_S, MOST_WORK, SHARE_S, Backlog, TurnShares, fitted
from tests.support.waiting import until


class Clock:
    """Time that passes with the steps taken."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Connection:
    """Works off a byte a step, and takes as long as it is told."""

    def __init__(self, name: str, steps: list[str], clock: Clock, took_s: float = SHARE_S) -> None:
        self.name = name
        self.may_step = True
        self.is_caught_up = self.is_aborted = self.is_failing = False
        self._steps = steps
        self._clock = clock
        self._took_s = took_s

    def take_step(self, data: bytes, start: int) -> int | None:
        if self.is_failing:
            raise RuntimeError("a mistake")
        self._steps.append(self.name)
        self._clock.now += self._took_s
        return start + 1 if start + 1 < len(data) else None

    def on_caught_up(self) -> None:
        self.is_caught_up = True

    def abort(self) -> None:
        self.is_aborted = True


class Scene:
    def __init__(self) -> None:
        self.clock, self.steps = Clock(), list[str]()
        self.shares = TurnShares(asyncio.get_running_loop(), self.clock)

    def add(self, name: str, size: int, *, is_new: bool = False, took_s: float = SHARE_S) -> Connection:
        connection = Connection(name, self.steps, self.clock, took_s)
        self.shares.queue(Backlog(connection, bytes(size)), is_new=is_new)
        return connection

    async def finish(self) -> str:
        await until(lambda: not len(self.shares), "input still waits")
        return "".join(self.steps)


async def test_connections_take_their_steps_in_turn() -> None:
    scene = Scene()
    several = [scene.add(name, 3) for name in "abc"]
    assert await scene.finish() == "abcabcabc"
    assert all(connection.is_caught_up for connection in several)


async def test_newcomers_come_before_those_that_have_had_a_step() -> None:
    scene = Scene()
    scene.add("a", 3)
    scene.add("b", 3)
    scene.add("n", 2, is_new=True)
    assert await scene.finish() == "nabnabab"


async def test_newcomers_without_end_do_not_starve_the_others() -> None:
    scene = Scene()
    waiting = scene.add("a", 3)
    for _ in range(20):
        scene.add("n", 1, is_new=True)
        scene.add("n", 1, is_new=True)
        await asyncio.sleep(0)
    assert waiting.is_caught_up
    assert len(scene.shares), "newcomers still come"


async def test_a_newcomer_with_a_few_bytes_is_served_first() -> None:
    scene = Scene()
    scene.add("a", 65, is_new=True)
    scene.add("n", 1, is_new=True)
    assert (await scene.finish())[:2] == "na"


async def test_a_turn_ends_when_its_share_is_used_up() -> None:
    scene = Scene()
    scene.add("a", 10, took_s=SHARE_S * 0.6)
    await asyncio.sleep(0)
    assert scene.steps == ["a"] * 2
    await asyncio.sleep(0)
    assert scene.steps == ["a"] * 4


async def test_all_reads_of_a_turn_have_one_share() -> None:
    scene = Scene()
    shares, clock = scene.shares, scene.clock
    for _ in range(2):
        began = clock.now
        assert not shares.is_used_up
        assert not shares.is_over(began)
        clock.now += SHARE_S * 0.6
        shares.charge(began)
        clock.now += 1  # something else
    assert shares.is_used_up
    assert shares.is_over(clock.now)
    await asyncio.sleep(0)
    assert not shares.is_used_up
    assert not shares.is_over(clock.now)


async def test_a_read_within_a_read_counts_once() -> None:
    scene = Scene()
    shares, clock = scene.shares, scene.clock
    outer = clock.now
    clock.now += SHARE_S * 0.1
    inner = clock.now
    clock.now += SHARE_S * 0.6
    shares.charge(inner)
    clock.now += SHARE_S * 0.1
    shares.charge(outer)
    assert not shares.is_used_up


async def test_what_waits_for_something_else_takes_no_steps() -> None:
    scene = Scene()
    connection = scene.add("a", 3)
    connection.may_step = False
    assert await scene.finish() == "a"
    assert not connection.is_caught_up


async def test_a_step_that_queues_its_own_input_is_not_repeated() -> None:
    """What a step does may queue the backlog, such as CONNACK or a resumed reader."""
    scene = Scene()
    connection = Connection("a", scene.steps, scene.clock)
    backlog = Backlog(connection, b"12")
    take_step = connection.take_step

    def take_and_queue(data: bytes, start: int) -> int | None:
        scene.shares.queue(backlog)
        return take_step(data, start)

    connection.take_step = take_and_queue  # type: ignore[method-assign]
    scene.shares.queue(backlog)
    assert await scene.finish() == "aa"
    await asyncio.sleep(0)
    assert scene.steps == ["a"] * 2


async def test_a_mistake_ends_its_connection_and_no_other() -> None:
    scene = Scene()
    broken, other = scene.add("a", 2), scene.add("b", 2)
    broken.is_failing = True
    assert await scene.finish() == "bb"
    assert broken.is_aborted
    assert other.is_caught_up


async def test_input_that_comes_later_is_worked_off_behind_the_rest() -> None:
    clock, steps = Clock(), list[str]()
    backlog = Backlog(Connection("a", steps, clock), b"12", 1)
    backlog.add(b"345")
    assert len(backlog) == 4
    while backlog.work_off():
        pass
    assert len(steps) == 4


async def test_discarded_input_takes_no_steps() -> None:
    scene = Scene()
    backlog = Backlog(Connection("a", scene.steps, scene.clock), b"123")
    scene.shares.queue(backlog)
    scene.shares.discard(backlog)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not scene.steps


async def test_the_doors_of_a_server_share_their_turns() -> None:
    server = Server(load().settings)
    assert server.mqtt.shares is server.http.shares is server.sidecar.shares


def test_steps_shrink_when_they_take_long_and_grow_when_they_do_not() -> None:
    assert fitted(64, 2 * LONG_STEP_S) == 32
    assert fitted(LEAST_WORK, 1.0) == LEAST_WORK
    assert fitted(64, 0.0) == 128
    assert fitted(MOST_WORK, 0.0) == MOST_WORK
