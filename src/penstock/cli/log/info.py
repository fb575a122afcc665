"""`penstock log info`: what there is in a data directory."""

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.cli.connection import Output, OutputOption
from penstock.cli.log.endings import counted, offsets_of
from penstock.cli.log.opened import Directory, opened
from penstock.cli.text import one_line

if TYPE_CHECKING:
    from penstock.cli.log.figures import Figures

EPOCHS_SHOWN = 5


def info(directory: Directory, *, output: OutputOption = Output.TEXT) -> None:
    """Say how much there is, from when to when, for whom it is kept, and what is missing."""
    with opened(directory) as snapshot:
        from penstock.cli.log.figures import as_json, gather  # noqa: PLC0415 - RocksDB takes a while

        figures = gather(snapshot)
        if output is Output.JSON:
            print(as_json(figures))
        else:
            _print(list(_facts(figures)), Console())


def _print(facts: list[tuple[str, str]], console: Console) -> None:
    """A table on a terminal, `name: value` where someone else reads."""
    if not console.is_terminal:
        for name, value in facts:
            print(f"{name}: {value}")
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(Text(name), Text(value))
    console.print(table)


def _facts(figures: "Figures") -> Iterator[tuple[str, str]]:
    yield "directory", f"{figures.path} ({'a server runs on it' if figures.is_served else 'no server'})"
    yield "log", f"{figures.log_id}, format {figures.format}"
    yield from _size(figures)
    epochs = [f"epoch {epoch.number} from offset {epoch.first}" for epoch in figures.epochs[-EPOCHS_SHOWN:]]
    starts = f"{', '.join(epochs)} (each start of the server begins an epoch)"
    yield "last starts", starts if epochs else "not known"
    yield from _readers(figures)
    for gap in figures.damage:
        yield "missing", f"{offsets_of(gap)}: {gap.reason}"
    for note in figures.notes:
        yield "damage", note
    if not figures.damage and not figures.notes:
        yield "damage", "none at first sight; `penstock log verify` reads everything"


def _size(figures: "Figures") -> Iterator[tuple[str, str]]:
    is_empty = figures.first_offset > figures.last_offset
    offsets = f"{figures.first_offset} to {figures.last_offset} (the server's own publishes take offsets too)"
    yield "offsets", "none" if is_empty else offsets
    if figures.first_published_at and figures.last_published_at:
        yield "published", f"{_time(figures.first_published_at)} to {_time(figures.last_published_at)}"
    yield "messages", f"{figures.messages:,}"
    stored, on_disk = amount_of(figures.bytes), amount_of(figures.disk_bytes)
    yield "size", f"{stored} stored (counts for log.retention_bytes), {on_disk} on disk"
    yield "sealed batches", f"{figures.sealed_batches:,}"
    frames = counted(figures.unsealed_frames, "frame")
    yield "not sealed", f"{counted(figures.unsealed_messages, 'message')} in {frames}"
    yield "topics", "not known" if figures.topics is None else f"{figures.topics:,}"


def _readers(figures: "Figures") -> Iterator[tuple[str, str]]:
    sessions = figures.sessions
    yield "sessions", f"{sessions.total:,}, {sessions.absent:,} absent, {sessions.behind:,} owed something"
    if sessions.owed_from is not None:
        yield "owed", f"from offset {sessions.owed_from + 1} on"
    yield "retained values", f"{figures.retained:,}"
    for hold in figures.holds:
        name, owner = one_line(hold.name.encode()), one_line(hold.owner.encode())
        yield f"hold {name}", f"after offset {hold.offset}, of {owner}, lapses at {_time(hold.lapses_at)}"


def amount_of(size: int) -> str:
    """A size as people say it."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << power:
            return f"{size / (1 << power):,.1f} {unit}"
    return f"{size} bytes"


def _time(when: datetime) -> str:
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")
