"""`penstock log tail`: the newest messages, and those that come."""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from sys import maxsize
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.log.asking import Request
from penstock.cli.log.endings import end
from penstock.cli.log.lines import Lines, lines_for
from penstock.cli.log.opened import Directory, opened
from penstock.cli.output import Output, OutputOption

if TYPE_CHECKING:
    from penstock.cli.log.serving import Serving
    from penstock.cli.log.snapshot import Snapshot

POLL_S = 0.2
"""How often to look whether something was committed."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def tail(
    directory: Directory,
    filters: Annotated[
        list[str] | None, typer.Argument(metavar="FILTER", help="Only topics that match.", show_default=False)
    ] = None,
    *,
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="How many to begin with.")] = 10,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Go on with what is committed from now on, until Ctrl-C or SIGTERM."
        ),
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Write the last messages, and with --follow those that come.

    Ends with 3 when something is missing among them.
    """
    request = Request(filters=tuple(filters or ()))
    request.check()
    with opened(directory) as snapshot:
        from penstock.cli.log.serving import Serving  # noqa: PLC0415 - Arrow takes a while

        begin = Request(filters=request.filters, from_offset=_find_last(snapshot, request, count) + 1)
        serving, lines = Serving(snapshot, begin), lines_for(output)
        if follow:
            with Patience().until_told_to_end() as patience:
                _follow(snapshot, serving, lines, patience)
        else:
            _write(serving, lines)
        end(serving.statement(), output)


class Patience:
    """Ctrl-C, SIGTERM and SIGHUP end a tail; the first not amid a batch, so that its place is known."""

    def __init__(self) -> None:
        self._is_over = self._is_waiting = False

    @contextmanager
    def until_told_to_end(self) -> Iterator["Patience"]:
        """Go on until one of these comes."""
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:  # nohup wants it so
                signal.signal(number, self._on_signal)
        try:
            with suppress(KeyboardInterrupt):
                yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_waiting or self._is_over:
            raise KeyboardInterrupt
        self._is_over = True

    def check(self) -> None:
        """Here it may end."""
        if self._is_over:
            raise KeyboardInterrupt

    def wait(self, seconds: float) -> None:
        """Do nothing for a while; here it may end too."""
        self._is_waiting = True
        self.check()
        time.sleep(seconds)
        self._is_waiting = False


def _find_last(snapshot: "Snapshot", request: Request, count: int) -> int:
    """The offset after which the last so many messages lie."""
    if not count:
        return snapshot.last_offset
    for piece in reversed(snapshot.pieces()):
        until = min(piece.last, snapshot.last_offset)
        runs = snapshot.reader.runs(piece.first - 1, until, maxsize, request.wanted).runs
        offsets = [run.offset + index for run in runs for index in range(run.count)]
        if len(offsets) >= count:
            return offsets[-count] - 1
        count -= len(offsets)
    return snapshot.first_offset - 1


def _write(serving: "Serving", lines: Lines, check: Callable[[], None] = lambda: None) -> None:
    for batch in serving.batches(lambda _: check()):
        sys.stdout.buffer.writelines(lines(batch))
    sys.stdout.flush()


def _follow(snapshot: "Snapshot", serving: "Serving", lines: Lines, patience: Patience) -> None:
    _write(serving, lines, patience.check)
    while True:
        if snapshot.refresh():
            serving.follow()
            _write(serving, lines, patience.check)
        patience.wait(POLL_S)
