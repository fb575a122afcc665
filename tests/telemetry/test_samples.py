"""Samplers: lag of the event loop, recent times of a histogram, resources of the process."""

import asyncio
import mmap
import os
import time
from pathlib import Path

import pytest

from penstock.common.histogram import Histogram, bucket_of
from penstock.telemetry import samples
from penstock.telemetry.samples import STEP_S, WINDOW_S, LoopLag, LoopStall, RecentTimes, read_process
from tests.support.clock import ManualClock
from tests.support.waiting import until

needs_proc = pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc")


async def wait_for_samples(measured: LoopLag, count: int) -> None:
    await until(
        lambda: measured.seconds.count >= count, "not enough samples were taken", timeout_s=10, every_s=0
    )


async def test_a_blocked_loop_lags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "LAG_INTERVAL_S", 0.01)
    measured = LoopLag()
    measured.start(asyncio.get_running_loop())
    time.sleep(0.1)  # blocks the loop
    await wait_for_samples(measured, 1)
    measured.stop()
    assert measured.seconds.seconds > 0.05


async def test_it_measures_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "LAG_INTERVAL_S", 0.0)
    measured = LoopLag()
    measured.start(asyncio.get_running_loop())
    await wait_for_samples(measured, 3)
    measured.stop()
    count = measured.seconds.count
    await asyncio.sleep(0.01)
    assert measured.seconds.count == count


class Sampled:
    """Histogram that is sampled twice a second."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.histogram = Histogram()
        self.recent = RecentTimes(self.histogram, self.clock)

    def add(self, seconds: float, times: int = 1) -> None:
        self.histogram.add(bucket_of(seconds), seconds, times)

    def wait(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            self.clock.advance(STEP_S)
            self.recent.sample()


def test_before_the_first_sample_everything_is_recent() -> None:
    sampled = Sampled()
    sampled.add(0.25, 4)
    count, mean, (half,) = sampled.recent.times(0.5)
    assert count == 4
    assert mean == pytest.approx(0.25)
    assert 0.2 <= half <= 0.25


def test_an_empty_histogram_has_zero_times() -> None:
    assert Sampled().recent.times(0.5, 0.99) == (0, 0.0, [0.0, 0.0])


def test_entries_older_than_the_window_are_left_out() -> None:
    sampled = Sampled()
    sampled.recent.sample()
    sampled.add(8.0)
    sampled.wait(WINDOW_S)
    sampled.add(0.001, 3)
    assert sampled.recent.times()[0] == 4, "it is not older yet"
    sampled.wait(STEP_S)
    count, mean, _ = sampled.recent.times()
    assert count == 3
    assert mean == pytest.approx(0.001)


def test_a_window_without_entries_is_zero() -> None:
    sampled = Sampled()
    sampled.recent.sample()
    sampled.add(1.0)
    sampled.wait(WINDOW_S + STEP_S)
    assert sampled.recent.times(0.99) == (0, 0.0, [0.0])


def test_samples_are_bounded_by_the_window() -> None:
    sampled = Sampled()
    sampled.wait(5 * WINDOW_S)
    assert len(sampled.recent._samples) == WINDOW_S / STEP_S + 1
    for _ in range(100):
        sampled.recent.sample()
    assert len(sampled.recent._samples) == WINDOW_S / STEP_S + 1


@needs_proc
def test_an_open_file_is_counted(tmp_path: Path) -> None:
    before = read_process().open_files
    assert before is not None
    with (tmp_path / "file").open("w"):
        assert read_process().open_files == before + 1


@needs_proc
def test_used_memory_and_cpu_time_are_reported() -> None:
    before = read_process()
    with mmap.mmap(-1, 64 * 1024 * 1024) as data:  # new pages; an allocator may reuse old ones
        for place in range(0, len(data), os.sysconf("SC_PAGE_SIZE")):
            data[place] = 1
        after = read_process()
    assert after.cpu_s > before.cpu_s
    assert before.resident_bytes is not None and after.resident_bytes is not None
    assert after.resident_bytes - before.resident_bytes > 32 * 1024 * 1024


def test_a_system_without_proc_reports_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(samples, "STATM", tmp_path / "statm")
    monkeypatch.setattr(samples, "FILES", tmp_path / "fd")
    assert (read_process().resident_bytes, read_process().open_files) == (None, None)


async def test_a_turn_that_takes_long_is_a_stall_by_its_cpu_time() -> None:
    stall = LoopStall()
    stall.start(asyncio.get_running_loop())
    await asyncio.sleep(0.05)
    until = time.thread_time() + 0.1
    while time.thread_time() < until:
        pass
    await asyncio.sleep(0.05)
    stall.stop()
    assert 0.05 < stall.recent_s() < 0.2


async def test_a_turn_that_only_waits_is_no_stall() -> None:
    stall = LoopStall()
    stall.start(asyncio.get_running_loop())
    await asyncio.sleep(0.02)
    time.sleep(0.2)
    await asyncio.sleep(0.05)
    stall.stop()
    assert stall.recent_s() < 0.1
