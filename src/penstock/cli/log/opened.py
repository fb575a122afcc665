"""How every command gets at its data directory, and how it ends when something goes wrong."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.output import INTERRUPTED, forget_stdout
from penstock.errors import InvalidConfig, StorageUnavailable
from penstock.extras import require_extra

if TYPE_CHECKING:
    from penstock.cli.log.snapshot import Snapshot

Directory = Annotated[Path, typer.Argument(metavar="DIRECTORY", help="The data directory.")]


@contextmanager
def opened(directory: Path) -> Iterator["Snapshot"]:
    """What is committed in a data directory, to be read; whatever cannot be done becomes one line.

    Raises:
        InvalidConfig: this is not a data directory, or it cannot be read, or a package is missing.
    """
    with spoken(directory):
        from penstock.cli.log.snapshot import Snapshot  # noqa: PLC0415 - RocksDB takes a while
        from penstock.storage.disk.opening import open_store  # noqa: PLC0415

        if lacks_database(directory):
            raise InvalidConfig(f"{directory}: {describe_missing(directory)}")
        store, opening = open_store(directory, read_only=True)
        try:
            yield Snapshot(store, opening)
        finally:
            store.close()


@contextmanager
def spoken(directory: Path) -> Iterator[None]:
    """Check what can be checked before anything is opened, and give every failure its line."""
    require_extra("log", "penstock log")
    if not directory.is_dir():
        what = "this is not a directory" if directory.exists() else "no such directory"
        raise InvalidConfig(f"{directory}: {what}")
    try:
        with told_to_end(lambda number: SystemExit(128 + number)):
            yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        forget_stdout()
        raise typer.Exit(0) from None
    except OSError as error:
        file = _tidy(str(error.filename or directory), directory)
        raise InvalidConfig(f"{file}: {error.strerror or error}") from error
    except StorageUnavailable as error:
        raise StorageUnavailable(_tidy(str(error), directory)) from error
    except InvalidConfig as error:  # here it is an argument, not a setting
        raise InvalidConfig(str(error).removeprefix("data_dir: ")) from error


def lacks_database(directory: Path) -> bool:
    """Whether this is a data directory whose database someone took away."""
    from penstock.storage.disk.layout import DATABASE_FOLDER, HEADER_FILE  # noqa: PLC0415

    # A draft that was to take its place does so when the directory is opened to write.
    names = (DATABASE_FOLDER, f"{DATABASE_FOLDER}.draft")
    return (directory / HEADER_FILE).exists() and not any((directory / name).exists() for name in names)


def describe_missing(directory: Path) -> str:
    """What it means that the database is missing."""
    from penstock.storage.disk.layout import DATABASE_FOLDER  # noqa: PLC0415
    from penstock.storage.disk.mark import Mark  # noqa: PLC0415

    mark = Mark.read(directory)
    lost = "everything" if mark is None else f"everything up to offset {mark.offset}"
    return f"the database folder {DATABASE_FOLDER}/ is missing; {lost} is lost unless it is put back"


@contextmanager
def told_to_end(make_error: Callable[[int], BaseException]) -> Iterator[None]:
    """Raise what is made of SIGTERM and SIGHUP, so that nothing temporary stays behind."""

    def leave(number: int, _: FrameType | None) -> None:
        raise make_error(number)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # nohup wants it so
            signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tidy(words: str, directory: Path) -> str:
    from penstock.cli.log.findings import tidy  # noqa: PLC0415

    return tidy(words, directory)
