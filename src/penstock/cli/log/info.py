"""`penstock log info`: what there is in a data directory."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.cli.log.endings import counted, offsets_of
from penstock.cli.log.opened import Directory, opened
from penstock.cli.output import Output, OutputOption
from penstock.cli.tables import print_pairs
from penstock.cli.text import one_line
from penstock.cli.units import moment_text, size_text

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
            print_pairs(_facts(figures))


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
        yield (
            "published",
            f"{moment_text(figures.first_published_at)} to {moment_text(figures.last_published_at)}",
        )
    yield "messages", f"{figures.messages:,}"
    stored, on_disk = size_text(figures.bytes), size_text(figures.disk_bytes)
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
        yield (
            f"hold {name}",
            f"after offset {hold.offset}, of {owner}, lapses at {moment_text(hold.lapses_at)}",
        )
