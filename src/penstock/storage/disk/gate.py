"""A gate that many may be inside of, or one alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition


class Gate:
    """Whoever wants to be alone waits until all others have left, and newcomers wait for him."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._inside = 0
        self._is_shut = False

    @property
    def is_shut(self) -> bool:
        """Newcomers have to wait."""
        return self._is_shut

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Be inside, together with others."""
        with self._changed:
            while self._is_shut:
                self._changed.wait()
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                if not self._inside:
                    self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Be inside alone."""
        with self._changed:
            while self._is_shut:
                self._changed.wait()
            self._is_shut = True
            while self._inside:
                self._changed.wait()
        try:
            yield
        finally:
            with self._changed:
                self._is_shut = False
                self._changed.notify_all()
