"""Waits end with the first true value, or fail with a message."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from tests.support.waiting import until, until_sync


def numbers() -> Iterator[int]:
    yield from (0, 0, 3)


async def test_the_first_true_value_is_returned() -> None:
    values = numbers()
    assert await until(lambda: next(values), "no number came", every_s=0) == 3


async def test_the_condition_may_be_awaitable() -> None:
    values = numbers()

    async def read() -> int:
        await asyncio.sleep(0)
        return next(values)

    assert await until(read, "no number came", every_s=0) == 3


async def test_the_deadline_fails_with_the_message_and_the_last_value() -> None:
    with pytest.raises(AssertionError, match=r"^no line came within 0\.02 s; last value: \[\]$"):
        await until(list, "no line came", timeout_s=0.02)


async def test_a_replaced_clock_does_not_stop_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    with pytest.raises(AssertionError, match="no line came"):
        await until(list, "no line came", timeout_s=0.02, every_s=0)


def test_a_thread_waits_the_same_way() -> None:
    values = numbers()
    assert until_sync(lambda: next(values), "no number came", every_s=0) == 3
    with pytest.raises(AssertionError, match=r"^no line came within 0\.02 s; last value: None$"):
        until_sync(lambda: None, "no line came", timeout_s=0.02)
