"""Rows that are staged and committed, and crashes: every committed row once and in order, of the others none.

Crashes and full disks come at every single turn, and in stories that follow from a seed.
"""

import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from penstock.core.durability.records import CHUNKS, DECIDED, PROGRESS, RELEASED, STAGED
from penstock.core.settings import CoreSettings, LogSettings, StageSettings
from penstock.core.staging import commit, packing, uploads
from penstock.errors import StorageUnavailable
from tests.core.staging.stagers import Writer, logged
from tests.support.broker import Stage
from tests.support.clock import ManualClock
from tests.support.disk import Disk

KEEP_ALL = LogSettings(capture=("#",))


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows need as many turns as many would."""
    monkeypatch.setattr(packing, "CHUNK_ROWS", 3)
    monkeypatch.setattr(commit, "SLICE_ROWS", 4)
    monkeypatch.setattr(uploads, "STORED_A_TURN", 40)


# Every moment


def run_until(world: "World", turns: int) -> bool:
    """Turn so often, or until all is done; answer whether it is."""
    for _ in range(turns):
        world.writer.step(world.stage)
        if world.writer.is_done and not world.stage.scheduler.pending:
            return True
        world.stage.scheduler.turn()
    return False


class World:
    """One writer on a disk."""

    def __init__(self) -> None:
        self.disk, self.clock = Disk(), ManualClock()
        self.writer = Writer("job", (7, 0, 5))
        self.stage = self.start()

    def start(self) -> Stage:
        return Stage(CoreSettings(log=KEEP_ALL), disk=self.disk, clock=self.clock)

    def crash(self) -> None:
        self.disk.crash()
        self.writer.lose()
        assert self.writer.has_asked or not logged(self.disk), "nothing is there before it is asked for"
        self.stage = self.start()

    def finish(self) -> None:
        self.disk.is_full = False
        for _ in range(100):
            run_until(self, 5)
            self.stage.advance(0.1)
        assert self.writer.record is not None
        assert logged(self.disk) == self.writer.rows
        assert self.writer.record.rows == 12
        left = {table: len(records) for table, records in self.disk.content.tables.items() if records}
        assert left == {RELEASED: 1}


def test_a_crash_at_any_turn_loses_no_row_and_repeats_none() -> None:
    for turns in range(1_000):
        world = World()
        is_over = run_until(world, turns)
        world.crash()
        world.finish()
        if is_over:
            assert turns > 20
            break
    else:
        pytest.fail("the story has no end")


@pytest.mark.parametrize("crash_after", [0, 1, 2, 5, None])
def test_a_full_disk_at_any_turn_loses_no_row_and_repeats_none(crash_after: int | None) -> None:
    for turns in range(1_000):
        world = World()
        is_over = run_until(world, turns)
        world.disk.is_full = True
        run_until(world, 3 if crash_after is None else crash_after)
        world.stage.advance(0.3)
        if crash_after is not None:
            world.crash()
        world.finish()
        if is_over:
            assert turns > 20
            break
    else:
        pytest.fail("the story has no end")


# Everything together


class Chaos:
    """Several writers, others who publish, and a server that is killed now and then."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk, self.clock = Disk(), ManualClock()
        self.stage = self._start()
        self.writers: list[Writer] = []
        self.noises = 0

    def _start(self) -> Stage:
        settings = CoreSettings(log=KEEP_ALL, stage=StageSettings(lapse_s=1_000_000.0))
        return Stage(settings, disk=self.disk, clock=self.clock)

    def step(self) -> None:
        for writer in self.chance.sample(self.writers, min(len(self.writers), 3)):
            writer.step(self.stage)
        if self.chance.random() < 0.7:
            self.stage.scheduler.turn()
        (action,) = self.chance.choices(list(ACTIONS), list(ACTIONS.values()))
        action(self)

    def begin(self) -> None:
        if sum(not writer.is_done for writer in self.writers) < 4:
            parts = [self.chance.choice((0, 1, 3, 10)) for _ in range(self.chance.randint(1, 3))]
            is_wanted = self.chance.random() < 0.8
            self.writers.append(Writer(f"job-{len(self.writers)}", parts, is_wanted=is_wanted))

    def publish(self) -> None:
        self.noises += 1
        client = self.stage.client("noisy")
        with suppress(StorageUnavailable):
            client.publish("a", f"noise:{self.noises}".encode(), qos=1)

    def wait(self) -> None:
        self.stage.scheduler.advance(self.chance.choice((0.05, 0.2)))

    def reap(self) -> None:
        self.stage.broker.reap()

    def get_stuck(self) -> None:
        self.disk.is_stuck = not self.disk.is_stuck
        if not self.disk.is_stuck:
            self.disk.sync()

    def fill_up(self) -> None:
        self.disk.is_full = not self.disk.is_full and self.chance.random() < 0.5

    def stop(self) -> None:
        self.stage.broker.stop()
        self.stage.settle()
        self.stage.broker.close()
        self.stage.settle()
        self.disk.sync()
        self.crash()

    def crash(self) -> None:
        self.disk.crash()
        for writer in self.writers:
            writer.lose()
        self.disk.is_stuck = False
        self.disk.is_full = self.disk.is_full and self.chance.random() < 0.5
        self.stage = self._start()

    def finish(self) -> None:
        self.disk.is_full = self.disk.is_stuck = False
        for _ in range(1_000):
            for writer in self.writers:
                writer.step(self.stage)
            self.disk.sync()
            self.stage.advance(0.1)
            if all(writer.is_done for writer in self.writers) and not self.stage.scheduler.pending:
                return
        raise AssertionError("it never comes to an end")

    def check(self) -> None:
        found: dict[str, list[bytes]] = {}
        for payload in logged(self.disk):
            found.setdefault(payload.decode().partition("/")[0], []).append(payload)
        for writer in self.writers:
            expected = writer.rows if writer.is_wanted else []
            assert found.get(writer.name, []) == expected, writer.name
        self.clock.advance(2_000_000.0)
        self.stage.advance(1.0)
        tables = self.disk.content.tables
        assert not any(tables.get(table) for table in (STAGED, CHUNKS, DECIDED, PROGRESS))
        assert self.stage.broker.staging.bytes == 0


ACTIONS: dict[Callable[[Chaos], None], int] = {
    Chaos.begin: 20,
    Chaos.publish: 10,
    Chaos.wait: 8,
    Chaos.reap: 2,
    Chaos.get_stuck: 4,
    Chaos.fill_up: 4,
    Chaos.stop: 1,
    Chaos.crash: 4,
}
"""What may happen, and how often it does."""


@pytest.mark.parametrize("part", range(4))
def test_committed_rows_are_in_the_log_once_and_in_order_after_any_story(part: int, scale: int) -> None:
    for seed in range(part * 50 * scale, (part + 1) * 50 * scale):
        world = Chaos(seed)
        try:
            for _ in range(150):
                world.step()
            world.finish()
            world.check()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
