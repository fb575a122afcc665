"""`penstock log tail`: the newest messages, and those that come."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from sys import maxsize
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.connection import Output, OutputOption
from penstock.cli.log.asking import Request
from penstock.cli.log.endings import end
from penstock.cli.log.lines import Lines, lines_for
from penstock.cli.log.opened import Directory, opened, told_to_end

if TYPE_CHECKING:
    from penstock.cli.log.serving import Serving
    from penstock.cli.log.snapshot import Snapshot

POLL_S = 0.2
"""How often to look whether something was committed."""


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
        with _until_told_to_end() if follow else nullcontext():
            _write(serving, lines)
            if follow:
                _follow(snapshot, serving, lines)
        end(serving.statement(), output)


@contextmanager
def _until_told_to_end() -> Iterator[None]:
    """Go on until Ctrl-C, SIGTERM or SIGHUP, all of which are the way to end this."""
    with suppress(KeyboardInterrupt), told_to_end(lambda _: KeyboardInterrupt()):
        yield


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


def _write(serving: "Serving", lines: Lines) -> None:
    for batch in serving.batches():
        sys.stdout.buffer.writelines(lines(batch))
    sys.stdout.flush()


def _follow(snapshot: "Snapshot", serving: "Serving", lines: Lines) -> None:
    while True:
        if snapshot.refresh():
            serving.follow()
            _write(serving, lines)
        time.sleep(POLL_S)
