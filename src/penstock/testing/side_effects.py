"""Side effects of servers in the process of a test, and their reversal.

A server turns the garbage collector down and writes events to the log. Here the events go into the lists of
those who ask for them, and nothing is printed; events of other programs take their own way.
"""

import gc
import sys
import threading
from collections.abc import Callable, MutableMapping
from typing import Any

import structlog
from structlog.typing import Processor, WrappedLogger

Event = MutableMapping[str, Any]
Listener = Callable[[Event], None]


class SideEffects:
    """The changes to the process while at least one server is there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[int, Listener] = {}  # by the thread of their server
        self._processors: list[Processor] = []
        self._thresholds = gc.get_threshold()

    def begin(self, listener: Listener) -> None:
        """Send the log lines of this thread's server to `listener`."""
        with self._lock:
            if not self._listeners:
                self._thresholds = gc.get_threshold()
                self._processors = structlog.get_config()["processors"]
                structlog.configure(processors=[self._take, *self._processors])
            self._listeners[threading.get_ident()] = listener

    def end(self) -> None:
        """The server of this thread is gone; with the last one everything is as it was."""
        with self._lock:
            del self._listeners[threading.get_ident()]
            if not self._listeners:
                gc.set_threshold(*self._thresholds)
                if structlog.get_config()["processors"][:1] == [self._take]:  # else a test has set its own
                    structlog.configure(processors=self._processors)

    def _take(self, _logger: WrappedLogger, method: str, event: Event) -> Event:
        """Keep an event of a server from being printed."""
        if not _is_ours():
            return event
        for listener in self._whom_to_tell():
            listener({"level": method, **event})
        raise structlog.DropEvent

    def _whom_to_tell(self) -> list[Listener]:
        """The server of this thread; all of them, if it is a thread that works for one of them."""
        listeners = dict(self._listeners)
        mine = listeners.get(threading.get_ident())
        return list(listeners.values()) if mine is None else [mine]


def _is_ours() -> bool:
    """Return whether a log line comes from Penstock: the first caller outside structlog."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("structlog"):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "")).startswith("penstock.")


SIDE_EFFECTS = SideEffects()
"""There is one process, so there is one of these."""
