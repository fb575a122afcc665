"""Garbage collection in short pauses: no collection visits all objects of a large server.

A collection stops the loop, for 60 to 350 ns an object. Young generations are small, so theirs are short. A
full collection grows with what is alive, and after one that was long, everything alive is frozen: later ones
visit only what is new. Frozen objects are still freed by their reference count; only cycles among them stay.
The server breaks its long-lived cycles itself.
"""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

THRESHOLDS = (4_000, 2, 1)
"""Of the three generations: a collection of young objects visits some 12,000 of them at most."""
LONG_S = 0.005
"""CPU time of a full collection after which everything alive is frozen."""
OLDEST = 2


@contextmanager
def without_collections() -> Iterator[None]:
    """Make no collection meanwhile: a start makes very many objects, and hardly any garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class GarbagePauses:
    """Keeps the pauses of one process short, from `begin` to `end`.

    Args:
        clock: CPU time.
    """

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._began = 0.0

    def begin(self) -> None:
        """Freeze what is alive: all that was loaded and recovered at the start."""
        gc.freeze()
        gc.callbacks.append(self.on_collection)

    def end(self) -> None:
        """Leave collections to Python again."""
        gc.callbacks.remove(self.on_collection)
        gc.unfreeze()

    def on_collection(self, phase: str, info: Mapping[str, Any]) -> None:
        """Measure a full collection, and freeze what is alive if it took long."""
        if info["generation"] < OLDEST:
            return
        if phase == "start":
            self._began = self._clock()
        elif self._clock() - self._began > LONG_S:
            gc.freeze()
