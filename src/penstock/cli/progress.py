"""Shows how far a command is, on a terminal only: on standard error, and gone when the work is done."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

Advance = Callable[[int], None]
"""Tells how far it is, of the total."""

LOOK_EVERY_S = 0.1


@contextmanager
def bar(what: str, total: int | None) -> Iterator[Advance]:
    """Show a bar, or without a total a count; where standard error is no terminal, nothing."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with Progress(*_columns(total is not None), console=console, transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda reached: progress.update(task, completed=reached)


@contextmanager
def ticking(what: str, count: Callable[[], int], total: int | None) -> Iterator[None]:
    """Show how many of something are done, looking now and then; nothing for one alone.

    A thread looks: work that never waits would not let its loop do it.
    """
    if total == 1:
        yield
        return
    done = threading.Event()
    with bar(what, total) as advance:
        looking = threading.Thread(target=_look, args=(count, advance, done), daemon=True)
        looking.start()
        try:
            yield
        finally:
            done.set()
            looking.join()


def _look(count: Callable[[], int], advance: Advance, done: threading.Event) -> None:
    while not done.wait(LOOK_EVERY_S):
        advance(count())


def _columns(has_end: bool) -> list[ProgressColumn]:
    what = TextColumn("{task.description}")
    if has_end:
        return [what, BarColumn(), TaskProgressColumn(), TimeRemainingColumn()]
    return [SpinnerColumn(), what, MofNCompleteColumn(), TimeElapsedColumn()]
