"""Live view of `penstock top` on a terminal.

A thread polls the server, so that keys work while it does not respond.
"""

import os
import select
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue

from rich.console import Console
from rich.live import Live

from penstock.cli.commands.top.screen import draw
from penstock.cli.commands.top.view import Order
from penstock.cli.commands.top.watch import Reading, Unavailable, Watch
from penstock.errors import PenstockError

REACT_WITHIN_S = 0.1
LEFT, RIGHT = "\x1b[D", "\x1b[C"

Event = Reading | Unavailable | PenstockError


def show_live(
    watch: Watch,
    first: Reading,
    address: str,
    order: Order,
    explain: Callable[[PenstockError], str],
    *,
    count: int | None,
) -> None:
    """Show a server until `q` or Ctrl-C, or for a number of readings.

    Raises:
        PenstockError: the server refuses.
    """
    events: SimpleQueue[Event] = SimpleQueue()
    stopping = threading.Event()
    threading.Thread(target=_poll, args=(watch, events, stopping), daemon=True).start()
    screen = Screen(first, address, order, explain)
    console = Console()
    try:
        with keyboard() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
            screen.show(live)
            _run(screen, live, keys, events, count)
    finally:
        stopping.set()


class Screen:
    """State of the live view: the reading shown, the sort order, the pause."""

    def __init__(
        self, first: Reading, address: str, order: Order, explain: Callable[[PenstockError], str]
    ) -> None:
        self.is_over = False
        self.is_paused = False
        self.order = order
        self._reading = first
        self._address = address
        self._explain = explain
        self._note: str | None = None

    def update(self, event: Reading | Unavailable) -> None:
        """Take the result of a poll."""
        if isinstance(event, Unavailable):
            self._note = f"The server is away, trying again: {self._explain(event.error)}"
        elif not self.is_paused:
            self._reading, self._note = event, None

    def press(self, key: str) -> None:
        """Handle a key."""
        orders = list(Order)
        index = orders.index(self.order)
        if key in ("q", "Q"):
            self.is_over = True
        elif key == " ":
            self.is_paused = not self.is_paused
        elif key in ("s", "S", RIGHT):
            self.order = orders[(index + 1) % len(orders)]
        elif key == LEFT:
            self.order = orders[index - 1]

    def show(self, live: Live) -> None:
        """Draw it."""
        view = self._reading.view(self._address, self.order)
        live.update(draw(view, live.console, self.order, self._note, self.is_paused), refresh=True)


class Keyboard:
    """Single keys of a terminal; none where standard input is not a terminal."""

    def __init__(self, file_number: int | None) -> None:
        self._file_number = file_number

    def wait(self, seconds: float) -> str | None:
        """The key that is pressed within a time, or None."""
        if self._file_number is None:
            time.sleep(seconds)
            return None
        ready, _, _ = select.select([self._file_number], [], [], seconds)
        if not ready:
            return None
        pressed = os.read(self._file_number, 16)
        if not pressed:  # the terminal is gone
            self._file_number = None
        return pressed.decode(errors="replace").replace("\x1bO", "\x1b[")  # the other form of arrow keys


@contextmanager
def keyboard() -> Iterator[Keyboard]:
    """Read keys without echo and line buffering; the terminal is restored at the end."""
    if not sys.stdin.isatty():
        yield Keyboard(None)
        return
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    try:
        tty.setcbreak(number)
        yield Keyboard(number)
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def _run(screen: Screen, live: Live, keys: Keyboard, events: "SimpleQueue[Event]", count: int | None) -> None:
    shown, size = 0, live.console.size
    while not screen.is_over and shown != count:
        key = keys.wait(REACT_WITHIN_S)
        if key is not None:
            screen.press(key)
        event = _next_event(events)
        if isinstance(event, PenstockError):
            raise event
        if event is not None:
            screen.update(event)
            shown += isinstance(event, Reading)
        if key is not None or event is not None or size != live.console.size:
            size = live.console.size
            screen.show(live)


def _next_event(events: "SimpleQueue[Event]") -> Event | None:
    try:
        return events.get_nowait()
    except Empty:
        return None


def _poll(watch: Watch, events: "SimpleQueue[Event]", stopping: threading.Event) -> None:
    """Queue the results of polling until the view ends."""
    try:
        for event in watch.readings(stopping.wait):
            if stopping.is_set():
                return
            events.put(event)
    except PenstockError as error:
        events.put(error)
