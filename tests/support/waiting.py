"""Waits with a deadline: a test that waits in vain fails, and says for what."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from time import monotonic  # tests may replace time.monotonic
from typing import Any, TypeVar, overload

TIMEOUT_S = 30.0
"""Generous, because the machine may be busy, and well below the limit of a test."""
EVERY_S = 0.005

Value = TypeVar("Value")


@overload
async def until(
    condition: Callable[[], Awaitable[Value | None]],
    message: str,
    timeout_s: float = ...,
    every_s: float = ...,
) -> Value: ...
@overload
async def until(
    condition: Callable[[], Value | None],
    message: str,
    timeout_s: float = ...,
    every_s: float = ...,
) -> Value: ...
async def until(
    condition: Callable[[], Any],
    message: str,
    timeout_s: float = TIMEOUT_S,
    every_s: float = EVERY_S,
) -> Any:
    """Poll a condition until it is true.

    Args:
        condition: returns the value to test, or an awaitable of it.
        message: what did not happen, as in "no connection was closed".
        every_s: pause between two polls; 0 polls in every turn of the event loop.

    Returns:
        The first true value.

    Raises:
        AssertionError: the time has passed; it names the last value.
    """
    deadline = monotonic() + timeout_s
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if monotonic() >= deadline:
            raise AssertionError(_failure(message, timeout_s, value))
        await asyncio.sleep(every_s)


def until_sync(
    condition: Callable[[], Value | None],
    message: str,
    timeout_s: float = TIMEOUT_S,
    every_s: float = EVERY_S,
) -> Value:
    """Poll a condition until it is true, in a thread without an event loop; otherwise as `until`."""
    deadline = monotonic() + timeout_s
    while not (value := condition()):
        if monotonic() >= deadline:
            raise AssertionError(_failure(message, timeout_s, value))
        time.sleep(every_s)
    return value


def _failure(message: str, timeout_s: float, value: object) -> str:
    return f"{message} within {timeout_s:g} s; last value: {value!r}"
