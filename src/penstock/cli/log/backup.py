"""`penstock log backup` and `penstock log restore`: a data directory as it is at one moment, somewhere else.

Both make a copy that is complete, checked and of one moment; they differ in what they ask for first, and in
what they say.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from penstock.cli.log.endings import INCOMPLETE, counted
from penstock.cli.log.opened import Directory, opened
from penstock.cli.output import Output, OutputOption
from penstock.errors import InvalidConfig
from penstock.storage.disk.layout import HARMLESS

if TYPE_CHECKING:
    from penstock.cli.log.copies import Copied

Target = Annotated[Path, typer.Argument(metavar="TARGET", help="Where to: missing, or an empty directory.")]
Backup = Annotated[Path, typer.Argument(metavar="BACKUP", help="What `penstock log backup` made.")]
Restored = Annotated[
    Path, typer.Argument(metavar="DIRECTORY", help="The data directory to be: missing, or an empty one.")
]


def backup(directory: Directory, target: Target, *, output: OutputOption = Output.TEXT) -> None:
    """Copy a data directory as it is at one moment, whether a server runs on it or not.

    The copy has messages, sessions, retained values and holds, and appears when it is complete. Ends with 3
    when something cannot be read, and is missing from it.
    """
    _end(_copy(directory, target), output, f"a backup is in {target}")


def restore(backup: Backup, directory: Restored, *, output: OutputOption = Output.TEXT) -> None:
    """Make a data directory of a backup, for a server to start on.

    The backup stays as it is. Ends with 3 when something of it cannot be read, and is missing.
    """
    _end(_copy(backup, directory, is_backup=True), output, f"a server can start on {directory}")


def _copy(source: Path, target: Path, *, is_backup: bool = False) -> "Copied":
    _refuse(source, target)
    with opened(source) as snapshot:
        from penstock.cli.log.copies import copy  # noqa: PLC0415 - RocksDB and Arrow take a while

        if is_backup and snapshot.is_served:
            raise InvalidConfig(f"{source} is in use by a server, so it is no backup; make one of it first")
        return copy(snapshot, target.absolute())


def _refuse(source: Path, target: Path) -> None:
    """Say why there can be no copy here, before anything is read."""
    if target.exists() and not _is_empty(target):
        raise InvalidConfig(f"{target}: this is there already, and not empty; name another place")
    if not target.absolute().parent.is_dir():
        raise InvalidConfig(f"{target.absolute().parent}: no such directory")
    if target.resolve().is_relative_to(source.resolve()):
        raise InvalidConfig(f"{target} is inside of {source}; name another place")


def _is_empty(target: Path) -> bool:
    return target.is_dir() and {entry.name for entry in target.iterdir()} <= HARMLESS


def _end(copied: "Copied", output: Output, where: str) -> None:
    if output is Output.JSON:
        print(msgspec.json.encode(copied).decode())
    else:
        _print(copied, where)
    sys.stdout.flush()
    if copied.missing:
        raise typer.Exit(INCOMPLETE)


def _print(copied: "Copied", where: str) -> None:
    for missing in copied.missing:
        print(f"missing: {missing}")
    what = [
        f"{counted(copied.messages, 'message')} up to offset {copied.last_offset}",
        counted(copied.sessions, "session"),
        counted(copied.retained, "retained value"),
    ]
    print(f"copied {', '.join(what)}: {where}")
