"""How every command gets at its data directory, and how it ends when something goes wrong."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.connection import forget_stdout
from penstock.errors import InvalidConfig
from penstock.storage.extra import require_extra

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

        store, opening = open_store(directory, read_only=True)
        try:
            yield Snapshot(store, opening)
        finally:
            store.close()


@contextmanager
def spoken(directory: Path) -> Iterator[None]:
    """Check what can be checked before anything is opened, and give every failure its line."""
    require_extra("penstock log")
    if not directory.is_dir():
        what = "this is not a directory" if directory.exists() else "there is nothing"
        raise InvalidConfig(f"{directory}: {what}")
    try:
        with _orderly_end():
            yield
    except BrokenPipeError:
        forget_stdout()
        raise typer.Exit(0) from None
    except OSError as error:
        raise InvalidConfig(f"{error.filename or directory}: {error.strerror or error}") from error
    except InvalidConfig as error:  # here it is an argument, not a setting
        raise InvalidConfig(str(error).removeprefix("data_dir: ")) from error


@contextmanager
def _orderly_end() -> Iterator[None]:
    """Turn SIGTERM into an ordinary exit, so that nothing temporary stays behind."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
