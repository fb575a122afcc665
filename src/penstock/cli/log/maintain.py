"""Commands about a whole data directory: `penstock log info`, `verify`, `repair`, `backup` and `restore`.

`penstock.storage.disk` does the work; the commands print its reports.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from penstock.cli.connect import HttpServer
from penstock.cli.flags import spread
from penstock.cli.log.directory import (
    INCOMPLETE,
    Directory,
    DirectoryOrServer,
    open_snapshot,
    reporting_errors,
)
from penstock.cli.log.read import check_place
from penstock.cli.log.remote import show_info
from penstock.cli.output import Output, OutputOption, one_line, print_pairs, progress_bar
from penstock.common.text import counted, moment_text, offsets_text, size_text
from penstock.errors import InvalidConfig
from penstock.storage.disk.rocksdb.layout import HARMLESS

if TYPE_CHECKING:
    from penstock.storage.disk.backup import BackupReport
    from penstock.storage.disk.repair import RepairReport
    from penstock.storage.disk.stats import LogStats
    from penstock.storage.disk.verify import Finding, VerifyReport

EPOCHS_SHOWN = 5

BackupTarget = Annotated[
    Path, typer.Argument(metavar="TARGET", help="Where to write it: a missing or an empty directory.")
]
BackupSource = Annotated[Path, typer.Argument(metavar="BACKUP", help="A copy made by `penstock log backup`.")]
RestoreTarget = Annotated[
    Path, typer.Argument(metavar="DIRECTORY", help="The new data directory: missing, or empty.")
]


@spread
def info(
    directory: DirectoryOrServer = None, *, server: HttpServer, output: OutputOption = Output.TEXT
) -> None:
    """Show the size, age, sessions, holds and gaps of a data directory, or the log of a running server."""
    check_place(directory, server)
    if directory is None:
        show_info(server, output)
        return
    with open_snapshot(directory) as snapshot:
        from penstock.storage.disk.stats import gather_stats  # noqa: PLC0415 - RocksDB takes a while

        stats = gather_stats(snapshot)
        if output is Output.JSON:
            print(msgspec.json.format(msgspec.json.encode(stats), indent=2).decode())
        else:
            print_pairs(_stats_as_text(stats))


def verify(directory: Directory, *, output: OutputOption = Output.TEXT) -> None:
    """Read everything, and check every checksum and whether all parts agree.

    Ends with 1 when something is damaged. Losses that the server had accepted already when it last started
    are listed, and do not count.
    """
    with open_snapshot(directory) as snapshot:
        from penstock.storage.disk import verify as verification  # noqa: PLC0415 - Arrow takes a while

        report = verification.verify(snapshot, progress_bar)
        if output is Output.JSON:
            print(_verify_as_json(report))
        else:
            _print_verify(report)
        if report.findings:
            raise typer.Exit(1)


def repair(
    directory: Directory,
    *,
    copy: Annotated[
        bool, typer.Option("--copy/--no-copy", help="Keep a copy of the directory as it was.")
    ] = True,
    empty: Annotated[
        bool, typer.Option("--empty", help="If the database is missing: begin with an empty one.")
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Keep what can be read, rebuild the index, and report what is lost.

    The server has to be stopped. An undamaged directory is not changed. Ends with 0 when the directory is
    usable, whatever was lost, and with 1 when the repair failed.
    """
    with reporting_errors(directory):
        from penstock.storage.disk.repair import repair_directory  # noqa: PLC0415 - Arrow takes a while

        report = repair_directory(directory, keeps_copy=copy, may_empty=empty, progress=progress_bar)
        if output is Output.JSON:
            print(_repair_as_json(report))
        else:
            _print_repair(report)


def backup(directory: Directory, target: BackupTarget, *, output: OutputOption = Output.TEXT) -> None:
    """Copy a data directory as it is at one moment, with or without a running server.

    The copy has messages, sessions, retained values and holds, and appears when it is complete. Ends with 3
    when something cannot be read, and is missing from it.
    """
    _report_copy(_copy(directory, target), output, f"a backup is in {target}")


def restore(backup: BackupSource, directory: RestoreTarget, *, output: OutputOption = Output.TEXT) -> None:
    """Make a data directory from a backup, for a server to start on.

    The backup is not changed. Ends with 3 when something in it cannot be read, and is missing.
    """
    _report_copy(_copy(backup, directory, is_backup=True), output, f"a server can start on {directory}")


def _stats_as_text(stats: "LogStats") -> Iterator[tuple[str, str]]:
    yield "directory", f"{stats.path} ({'a server runs on it' if stats.is_served else 'no server'})"
    yield "log", f"{stats.log_id}, format {stats.format}"
    yield from _size_as_text(stats)
    epochs = [f"epoch {epoch.number} from offset {epoch.first}" for epoch in stats.epochs[-EPOCHS_SHOWN:]]
    starts = f"{', '.join(epochs)} (each start of the server begins an epoch)"
    yield "last starts", starts if epochs else "not known"
    yield from _readers_as_text(stats)
    for gap in stats.damage:
        yield "missing", f"{offsets_text(gap.first, gap.last)}: {gap.reason}"
    for note in stats.notes:
        yield "damage", note
    if not stats.damage and not stats.notes:
        yield "damage", "none at first sight; `penstock log verify` reads everything"


def _size_as_text(stats: "LogStats") -> Iterator[tuple[str, str]]:
    is_empty = stats.first_offset > stats.last_offset
    offsets = f"{stats.first_offset} to {stats.last_offset} (the server's own publishes take offsets too)"
    yield "offsets", "none" if is_empty else offsets
    if stats.first_published_at and stats.last_published_at:
        yield (
            "published",
            f"{moment_text(stats.first_published_at)} to {moment_text(stats.last_published_at)}",
        )
    yield "messages", f"{stats.messages:,}"
    stored, on_disk = size_text(stats.bytes), size_text(stats.disk_bytes)
    yield "size", f"{stored} stored (counts for log.retention_bytes), {on_disk} on disk"
    yield "sealed batches", f"{stats.sealed_batches:,}"
    frames = counted(stats.unsealed_frames, "frame")
    yield "not sealed", f"{counted(stats.unsealed_messages, 'message')} in {frames}"
    yield "topics", "not known" if stats.topics is None else f"{stats.topics:,}"


def _readers_as_text(stats: "LogStats") -> Iterator[tuple[str, str]]:
    sessions = stats.sessions
    yield "sessions", f"{sessions.total:,}, {sessions.absent:,} absent, {sessions.behind:,} owed something"
    if sessions.owed_from is not None:
        yield "owed", f"from offset {sessions.owed_from + 1} on"
    yield "retained values", f"{stats.retained:,}"
    for hold in stats.holds:
        name, owner = one_line(hold.name.encode()), one_line(hold.owner.encode())
        yield (
            f"hold {name}",
            f"after offset {hold.offset}, of {owner}, lapses at {moment_text(hold.lapses_at)}",
        )


def _print_verify(report: "VerifyReport") -> None:
    for finding in report.known:
        print(f"known: {finding.offsets} {'was' if finding.first == finding.last else 'were'} lost earlier")
    for finding in report.findings:
        print(f"damaged: {finding.text}")
    read = [
        counted(report.messages, "message"),
        counted(report.batches, "sealed batch", "es"),
        counted(report.frames, "frame"),
        counted(report.records, "record"),
    ]
    result = counted(len(report.findings), "finding") if report.findings else "all is well"
    print(f"read {', '.join(read)}: {result}")
    if any(finding.is_repairable for finding in report.findings):
        print("Run `penstock log repair` to put in order what can be saved")


def _verify_as_json(report: "VerifyReport") -> str:
    content = {
        "messages": report.messages,
        "batches": report.batches,
        "frames": report.frames,
        "records": report.records,
        "findings": _findings_as_json(report.findings),
        "known": [{"first": each.first, "last": each.last} for each in report.known],
    }
    return msgspec.json.encode(content).decode()


def _print_repair(report: "RepairReport") -> None:
    if not report.findings:
        print("all is well: nothing to repair")
        return
    for finding in report.findings:
        print(f"damaged: {finding.text}")
    for gap in report.lost:
        print(f"lost: {offsets_text(gap.first, gap.last)} cannot be read any more")
    if report.is_state_doubtful:
        print("lost: changes of sessions, perhaps")
    if report.sealed:
        print(f"sealed {counted(report.sealed, 'message')}")
    if report.copy is not None:
        print(f"as it was before: {report.copy}")
    if report.has_changed:
        print("the directory is in order" + (", but for what is lost" if report.lost else ""))
    else:
        print("nothing can be done about it")


def _repair_as_json(report: "RepairReport") -> str:
    content = {
        "findings": _findings_as_json(report.findings),
        "lost": report.lost,
        "is_state_doubtful": report.is_state_doubtful,
        "sealed": report.sealed,
        "copy": None if report.copy is None else str(report.copy),
        "has_changed": report.has_changed,
    }
    return msgspec.json.encode(content).decode()


def _findings_as_json(findings: "Iterable[Finding]") -> list[dict[str, Any]]:
    return [
        {"what": each.what, "first": each.first, "last": each.last, "remedy": each.remedy}
        for each in findings
    ]


def _copy(source: Path, target: Path, *, is_backup: bool = False) -> "BackupReport":
    _check_target(source, target)
    with open_snapshot(source) as snapshot:
        from penstock.storage.disk.backup import write_backup  # noqa: PLC0415 - Arrow takes a while

        if is_backup and snapshot.is_served:
            raise InvalidConfig(f"{source} is in use by a server, so it is no backup; make one of it first")
        return write_backup(snapshot, target.absolute(), progress_bar)


def _check_target(source: Path, target: Path) -> None:
    """Refuse a target that cannot be written, before anything is read."""
    if target.exists() and not _is_empty(target):
        raise InvalidConfig(f"{target}: this is there already, and not empty; name another place")
    if not target.absolute().parent.is_dir():
        raise InvalidConfig(f"{target.absolute().parent}: no such directory")
    if target.resolve().is_relative_to(source.resolve()):
        raise InvalidConfig(f"{target} is inside of {source}; name another place")


def _is_empty(target: Path) -> bool:
    return target.is_dir() and {entry.name for entry in target.iterdir()} <= HARMLESS


def _report_copy(report: "BackupReport", output: Output, where: str) -> None:
    if output is Output.JSON:
        print(msgspec.json.encode(report).decode())
    else:
        _print_copy(report, where)
    sys.stdout.flush()
    if report.missing:
        raise typer.Exit(INCOMPLETE)


def _print_copy(report: "BackupReport", where: str) -> None:
    for missing in report.missing:
        print(f"missing: {missing}")
    contents = [
        f"{counted(report.messages, 'message')} up to offset {report.last_offset}",
        counted(report.sessions, "session"),
        counted(report.retained, "retained value"),
    ]
    print(f"copied {', '.join(contents)}: {where}")
