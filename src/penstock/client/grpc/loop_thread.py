"""Event loop in a background thread, for blocking programs."""

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from penstock.client.errors import ConnectionLost

T = TypeVar("T")

_END_TIMEOUT_S = 1.0


class LoopThread:
    """Runs coroutines for other threads; ends with `stop`, or with the interpreter.

    Args:
        on_exit: called when the interpreter exits before `stop`.
    """

    def __init__(self, on_exit: Callable[[], None]) -> None:
        self._loop = asyncio.new_event_loop()
        self._on_exit = on_exit
        self._thread = threading.Thread(target=self._run, name="penstock-client", daemon=True)
        self._is_stopped = False
        self._process = os.getpid()
        self._thread.start()
        atexit.register(on_exit)

    @property
    def is_own_process(self) -> bool:
        """Return whether it runs in this process; a forked child inherits no threads."""
        return os.getpid() == self._process

    @property
    def is_current(self) -> bool:
        """Return whether it is the calling thread."""
        return threading.current_thread() is self._thread

    def start(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start a coroutine without waiting for it."""
        if self._is_stopped:
            coroutine.close()
            raise ConnectionLost("the client was closed")
        if not self.is_own_process:
            coroutine.close()
            raise ConnectionLost("the client belongs to another process; open a new one after a fork")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and wait for its result."""
        if self.is_current:
            coroutine.close()
            raise RuntimeError("a callback must not call the blocking client that runs it")
        future = self.start(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # the interrupted caller does not need it any more
            raise

    def call_soon(self, callback: Callable[..., object], *values: object) -> None:
        """Schedule a callback in the loop; ignored after `stop`."""
        if not self._is_stopped:
            self._loop.call_soon_threadsafe(callback, *values)

    def stop(self) -> None:
        """Stop the loop and its thread. Idempotent."""
        if self._is_stopped:
            return
        self._is_stopped = True
        atexit.unregister(self._on_exit)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._end_tasks()
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()

    def _end_tasks(self) -> None:
        """Let tasks finish: gRPC still calls into a loop that it was used in."""
        tasks = asyncio.all_tasks(self._loop)
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks, timeout=_END_TIMEOUT_S))
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
