"""One run of a server: a thread with a loop of its own, and its side effects on the process of a test.

A server turns the garbage collector down and writes events to the log. Here the events go into the lists of
those who ask for them, and nothing is printed; events of other programs take their own way.
"""

import asyncio
import gc
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Iterator, MutableMapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import structlog
from structlog.typing import Processor, WrappedLogger

if TYPE_CHECKING:
    from penstock.app import Server
    from penstock.config import Settings
    from penstock.core.runtime.clock import Clock

Event = MutableMapping[str, Any]
Listener = Callable[[Event], None]
T = TypeVar("T")

START_TIMEOUT_S = 60.0
RESPONSE_TIMEOUT_S = 30.0
"""Time for an immediate operation on a busy machine."""
GRACE_S = 10.0
"""Grace beyond the settings before a slow stop is an error."""


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
        for listener in self._listeners_here():
            listener({"level": method, **event})
        raise structlog.DropEvent

    def _listeners_here(self) -> list[Listener]:
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


class ServerThread:
    """A server that runs in a thread of its own; every method may be called from any other thread."""

    def __init__(self, settings: "Settings", clock: "Clock | None", listener: Listener) -> None:
        self._settings = settings
        self._clock = clock
        self._listener = listener
        self._started: Future[Server] = Future()
        self._stopping = asyncio.Event()
        self._released: threading.Event | None = None
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread

    # In its own thread

    def _run(self, make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        SIDE_EFFECTS.begin(self._listener)
        try:
            with asyncio.Runner(loop_factory=make_loop) as runner:
                runner.run(self._serve())
        finally:
            SIDE_EFFECTS.end()

    async def _serve(self) -> None:
        from penstock.app import Server  # noqa: PLC0415 - as in `start`

        self._loop = asyncio.get_running_loop()
        try:
            server = Server(self._settings, self._clock)
            await server.start()
        except BaseException as error:  # it belongs to who waits for the start
            self._started.set_exception(error)
            return
        self._started.set_result(server)
        await self._stopping.wait()
        await server.stop()

    # For all others

    def start(self) -> "Server":
        """Begin, and wait until every door is open.

        Raises:
            InvalidConfig: it cannot be started with these settings.
        """
        from penstock.app import best_loop  # noqa: PLC0415 - a third of a second, and only for who starts one

        self._thread = threading.Thread(
            target=self._run, args=(best_loop(),), name="penstock-server", daemon=True
        )
        self._thread.start()
        try:
            return self._started.result(START_TIMEOUT_S)
        except TimeoutError:
            raise TimeoutError(f"the server has not started; {self._whereabouts()}") from None
        except BaseException:
            self._thread.join(GRACE_S)
            raise

    def stop(self) -> None:
        """Let it drain and end.

        Raises:
            TimeoutError: it takes much longer than it should; the message says what it is at.
        """
        self.release()
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(self._settings.shutdown_timeout_s + GRACE_S)
        if self._thread.is_alive():
            raise TimeoutError(f"the server does not stop; {self._whereabouts()}")

    def call(self, work: "Callable[[Server], T]") -> T:
        """Have something done in its thread, and wait for what comes of it."""

        async def do() -> T:
            return work(self._started.result())

        return self._wait(do())

    def ask(self, work: "Callable[[Server], Awaitable[T]]") -> T:
        """The same for something that has to wait in the loop itself."""

        async def do() -> T:
            return await work(self._started.result())

        return self._wait(do())

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("the server's own thread must not wait for the server")
        if self._released is not None:
            coroutine.close()
            raise RuntimeError("the server is stalled, and cannot be asked")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(RESPONSE_TIMEOUT_S)
        except TimeoutError:
            future.cancel()
            raise TimeoutError(f"the server does not respond; {self._whereabouts()}") from None

    # Faults

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Let nothing happen in its loop meanwhile: it is there, takes connections, and says nothing."""
        if self._released is not None:
            raise RuntimeError("the server is stalled already")
        has_stalled, released = threading.Event(), threading.Event()

        def stall() -> None:
            has_stalled.set()
            released.wait()

        self._released = released
        self._loop.call_soon_threadsafe(stall)
        has_stalled.wait(RESPONSE_TIMEOUT_S)
        try:
            yield
        finally:
            self.release()

    def release(self) -> None:
        """Resume a stalled server."""
        if self._released is not None:
            self._released.set()
            self._released = None

    def _whereabouts(self) -> str:
        """Describe what the thread is doing, for a wait that timed out."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        if frame is None:
            return "its thread has ended"
        return "its thread is here:\n" + "".join(traceback.format_stack(frame))
