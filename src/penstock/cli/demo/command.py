"""The command itself: the chapters one after the other, and nothing left behind."""

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Annotated

import typer

from penstock import __version__
from penstock.cli.demo.screen import Screen
from penstock.cli.output import INTERRUPTED
from penstock.cli.program import program
from penstock.errors import InvalidConfig, PenstockError
from penstock.extras import require_extra

TERMINATED = 143


def demo(
    keep: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep the log and the lake in this folder, which must be empty."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0, help="How long the plant works, at least.")] = 8.0,
) -> None:
    """Show what Penstock can do, in a minute or two: four doors, one log, Spark, and a proof.

    It starts a server of its own on free ports and stops it again. Nothing is left behind without --keep.
    """
    require_extra("spark", "penstock demo")
    try:
        with _ended_by_signal(), _folder(keep) as folder:
            _tell(folder, keep is not None, seconds)
    except (PenstockError, typer.Exit):
        raise
    except Exception as error:  # of one of many programs, or a fault of ours; still one line
        raise _as_ours(error) from None


def _tell(folder: Path, is_kept: bool, seconds: float) -> None:
    from penstock.cli.demo import lake, resume, slow, story  # noqa: PLC0415 - not for `penstock --help`
    from penstock.cli.demo.server import serving  # noqa: PLC0415

    screen, began = Screen(), time.monotonic()
    screen.title(f"Penstock {__version__}: a plant with pumps, presses and ovens")
    with lake.without_spark_errors(folder), serving(folder) as server:
        story.open_doors(server, screen)
        tally = asyncio.run(story.let_work(server, seconds, screen))
        screen.chapter("Resume across doors")
        course = asyncio.run(resume.tell(server, tally, screen))
        screen.chapter("A slow subscriber, and why it lost messages")
        losses = asyncio.run(slow.tell(server, screen))
        screen.chapter("Archive with Spark, and look")
        with lake.spark_session(folder, screen) as spark:
            with screen.working("waiting for the window of ten seconds to end"):
                lake.end_shift(server)
            ours = lake.Lake(spark, server, folder / "lake", screen)
            ours.archive(course, losses)
            screen.chapter("Audit: is everything there?")
            ours.audit()
    screen.chapter("Where to go on")
    story.show_next_steps(folder if is_kept else None, program(), screen)
    screen.say(f"Done in {time.monotonic() - began:.0f} s.")


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """Where everything is written: a folder that goes away, unless it is to be kept.

    Raises:
        InvalidConfig: the folder to keep it in cannot be used.
    """
    if keep is None:
        with TemporaryDirectory(prefix="penstock-demo-", ignore_cleanup_errors=True) as name:
            yield Path(name)
        return
    try:
        keep.mkdir(parents=True, exist_ok=True)
        has_something = any(keep.iterdir())
    except OSError as error:
        raise InvalidConfig(f"--keep {keep}: {error.strerror}") from None
    if has_something:
        raise InvalidConfig(f"--keep {keep}: there is something in it; give an empty folder, or a new one")
    yield keep.resolve()


@contextmanager
def _ended_by_signal() -> Iterator[None]:
    """Let SIGTERM end the demonstration as Ctrl-C does, so that everything is put away."""
    is_terminated = False

    def end(_number: int, _frame: FrameType | None) -> None:
        nonlocal is_terminated
        is_terminated = True
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(_stopped(TERMINATED if is_terminated else INTERRUPTED)) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _stopped(code: int) -> int:
    typer.echo("stopped.", err=True)
    return code


def _as_ours(error: BaseException) -> PenstockError:
    """What went wrong first, in words for one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, PenstockError):
        return error
    return PenstockError(f"the demonstration failed: {type(error).__name__}: {error}")
