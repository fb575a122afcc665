"""Reader-writer lock."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition


class ReadWriteLock:
    """Many shared holders, or one exclusive. A waiting exclusive holder goes before new shared ones."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._shared = 0
        self._is_exclusive = False

    @property
    def is_exclusive(self) -> bool:
        """The lock is held exclusively, or about to be: new holders wait."""
        return self._is_exclusive

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold the lock together with others."""
        with self._changed:
            while self._is_exclusive:
                self._changed.wait()
            self._shared += 1
        try:
            yield
        finally:
            with self._changed:
                self._shared -= 1
                if not self._shared:
                    self._changed.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock alone."""
        with self._changed:
            while self._is_exclusive:
                self._changed.wait()
            self._is_exclusive = True
            while self._shared:
                self._changed.wait()
        try:
            yield
        finally:
            with self._changed:
                self._is_exclusive = False
                self._changed.notify_all()
