"""Who wants to know how the connection stands, and what is missing."""

import logging
from collections.abc import Callable
from typing import Any

from penstock.client.nexusd_following import Gap
from penstock.compat.nexusd_client.values import ReconnectionState

StateCallback = Callable[[ReconnectionState, BaseException | None], object]
GapCallback = Callable[[int, int, str], object]

logger = logging.getLogger("penstock.compat.nexusd_client")


class Listeners:
    """The functions that a program has registered; one that fails disturbs nobody."""

    def __init__(self) -> None:
        self.state = ReconnectionState.DISCONNECTED
        self._on_state: list[StateCallback] = []
        self._on_gap: list[GapCallback] = []

    def add_state(self, callback: StateCallback) -> None:
        """Call it with each new state, and the error that led to it."""
        self._on_state.append(callback)

    def add_gap(self, callback: GapCallback) -> None:
        """Call it with the number that was expected, the one that came, and the topic."""
        self._on_gap.append(callback)

    def tell_state(self, state: ReconnectionState, error: BaseException | None = None) -> None:
        """Tell a state, if it is a new one."""
        if state is self.state:
            return
        self.state = state
        logger.info("connection is %s", state.value)
        for callback in self._on_state:
            call_safely(callback, state, error)

    def tell_gap(self, gap: Gap, subscription_id: str) -> None:
        """Tell of messages that will not come."""
        fields = {"subscription_id": subscription_id, "topics": [gap.topic], "gap": gap.missed}
        logger.warning("gap in %s: expected %d, got %d", gap.topic, gap.expected, gap.actual, extra=fields)
        for callback in self._on_gap:
            call_safely(callback, gap.expected, gap.actual, gap.topic)


def call_safely(callback: Callable[..., object], *values: Any) -> None:
    """Call what a program has given; its errors are its own."""
    try:
        callback(*values)
    except Exception:
        logger.exception("a callback has failed")
