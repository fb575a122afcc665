"""How late the loop is."""

import asyncio
import time

import pytest

from penstock.telemetry import lag
from penstock.telemetry.lag import LoopLag


async def until(measured: LoopLag, count: int) -> None:
    while measured.seconds.count < count:
        await asyncio.sleep(0)


async def test_a_loop_that_was_busy_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "INTERVAL_S", 0.01)
    measured = LoopLag()
    measured.start(asyncio.get_running_loop())
    time.sleep(0.1)  # the loop stands still
    await until(measured, 1)
    measured.stop()
    assert measured.seconds.seconds > 0.05


async def test_it_goes_on_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "INTERVAL_S", 0.0)
    measured = LoopLag()
    measured.start(asyncio.get_running_loop())
    await until(measured, 3)
    measured.stop()
    count = measured.seconds.count
    await asyncio.sleep(0.01)
    assert measured.seconds.count == count
