"""Access to a data directory for the commands of `penstock log`, with one-line errors.

RocksDB and Arrow are imported when a command runs: `penstock --help` imports all commands.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.output import INTERRUPTED, discard_stdout
from penstock.errors import InvalidConfig, StorageUnavailable
from penstock.extras import require_extra

if TYPE_CHECKING:
    from penstock.storage.disk.snapshot import Snapshot

INCOMPLETE = 3
"""Exit code when part of the requested data is missing."""

Directory = Annotated[Path, typer.Argument(metavar="DIRECTORY", help="The data directory.")]
DirectoryOrServer = Annotated[
    Path | None,
    typer.Argument(
        metavar="DIRECTORY", help="The data directory; without one a running server is asked, over HTTP."
    ),
]


@contextmanager
def open_snapshot(directory: Path) -> Iterator["Snapshot"]:
    """Open a data directory read-only; errors are reported as by `reporting_errors`.

    Raises:
        InvalidConfig: this is not a data directory, it cannot be read, or a package is missing.
    """
    with reporting_errors(directory):
        from penstock.storage.disk import snapshot  # noqa: PLC0415 - RocksDB takes a while

        with snapshot.open_snapshot(directory) as opened:
            yield opened


@contextmanager
def reporting_errors(directory: Path) -> Iterator[None]:
    """Check what can be checked before a directory is opened, and turn every failure into one line."""
    require_extra("log", "penstock log")
    if not directory.is_dir():
        what = "this is not a directory" if directory.exists() else "no such directory"
        raise InvalidConfig(f"{directory}: {what}")
    try:
        with raising_on_signals(lambda number: SystemExit(128 + number)):
            yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        discard_stdout()
        raise typer.Exit(0) from None
    except OSError as error:
        file = _clean_text(str(error.filename or directory), directory)
        raise InvalidConfig(f"{file}: {error.strerror or error}") from error
    except StorageUnavailable as error:
        raise StorageUnavailable(_clean_text(str(error), directory)) from error
    except InvalidConfig as error:  # here it is an argument, not a setting
        raise InvalidConfig(str(error).removeprefix("data_dir: ")) from error


@contextmanager
def raising_on_signals(make_error: Callable[[int], BaseException]) -> Iterator[None]:
    """Raise an error on SIGTERM and SIGHUP, so that temporary files are removed."""

    def leave(number: int, _: FrameType | None) -> None:
        raise make_error(number)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # set by nohup
            signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _clean_text(words: str, directory: Path) -> str:
    from penstock.storage.disk.snapshot import database_error_text  # noqa: PLC0415 - RocksDB takes a while

    return database_error_text(words, directory)
