"""The live view: asks in a thread, so that keys are heard also while the server does not answer."""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from rich.console import Console
from rich.live import Live

from penstock.cli.top import keys
from penstock.cli.top.order import Order
from penstock.cli.top.screen import draw
from penstock.cli.top.watch import Away, Seen, Watch
from penstock.errors import PenstockError

REACT_WITHIN_S = 0.1

Heard = Seen | Away | PenstockError


class Screen:
    """What is shown, and what keys do to it."""

    def __init__(
        self, first: Seen, address: str, order: Order, explain: Callable[[PenstockError], str]
    ) -> None:
        self.is_over = False
        self.is_paused = False
        self.order = order
        self._seen = first
        self._address = address
        self._explain = explain
        self._note: str | None = None

    def hear(self, heard: Seen | Away) -> None:
        """Take news of the server."""
        if isinstance(heard, Away):
            self._note = f"The server is away, trying again: {self._explain(heard.error)}"
        elif not self.is_paused:
            self._seen, self._note = heard, None

    def press(self, key: str) -> None:
        """Do what a key is for."""
        orders = list(Order)
        place = orders.index(self.order)
        match key:
            case "q" | "Q":
                self.is_over = True
            case " ":
                self.is_paused = not self.is_paused
            case "s" | "S" | keys.RIGHT:
                self.order = orders[(place + 1) % len(orders)]
            case keys.LEFT:
                self.order = orders[place - 1]

    def show(self, live: Live) -> None:
        """Draw it."""
        view = self._seen.view(self._address, self.order)
        live.update(draw(view, live.console, self.order, self._note, self.is_paused), refresh=True)


def show_live(
    watch: Watch,
    first: Seen,
    address: str,
    order: Order,
    explain: Callable[[PenstockError], str],
    *,
    count: int | None,
) -> None:
    """Show a server until `q` or Ctrl-C, or so many times.

    Raises:
        PenstockError: the server does not let us look any more.
    """
    news: SimpleQueue[Heard] = SimpleQueue()
    stopping = threading.Event()
    threading.Thread(target=_ask, args=(watch, news, stopping), daemon=True).start()
    screen = Screen(first, address, order, explain)
    console = Console()
    try:
        with keys.keyboard() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
            screen.show(live)
            _run(screen, live, pressed, news, count)
    finally:
        stopping.set()


def _run(
    screen: Screen, live: Live, pressed: keys.Keyboard, news: "SimpleQueue[Heard]", count: int | None
) -> None:
    shown, size = 0, live.console.size
    while not screen.is_over and shown != count:
        key = pressed.wait(REACT_WITHIN_S)
        if key is not None:
            screen.press(key)
        heard = _take(news)
        if isinstance(heard, PenstockError):
            raise heard
        if heard is not None:
            screen.hear(heard)
            shown += isinstance(heard, Seen)
        if key is not None or heard is not None or size != live.console.size:
            size = live.console.size
            screen.show(live)


def _take(news: "SimpleQueue[Heard]") -> Heard | None:
    try:
        return news.get_nowait()
    except Empty:
        return None


def _ask(watch: Watch, news: "SimpleQueue[Heard]", stopping: threading.Event) -> None:
    """Bring what the server says, until nobody wants it any more."""
    try:
        for heard in watch.looks(stopping.wait):
            if stopping.is_set():
                return
            news.put(heard)
    except PenstockError as error:
        news.put(error)
