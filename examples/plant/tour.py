"""Tour of the plant in seven chapters; every number that it prints is of the run itself."""

import asyncio
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import penstock

from . import lake
from .resume import show_resume
from .screen import PlantError, Screen
from .server import PlantServer, run_server
from .slow_subscriber import show_losses
from .traffic import COLUMNS, DOORS, WORKERS, Counts, count_at_doors, door_rows, run_plant

INTERRUPTED = 130
TERMINATED = 143
HTTP_ADDRESS = "http://127.0.0.1:8080"
"""Default HTTP address of `penstock serve`."""


def show_tour(keep: Path | None, seconds: float, command: str = "penstock") -> int:
    """Show all chapters; returns the exit code.

    Args:
        keep: empty folder for the log and the lake; default: a temporary one.
        seconds: how long the plant works, at least.
        command: the console command, for the texts that can be copied.

    Raises:
        PlantError: the tour cannot continue.
    """
    try:
        with _interrupted_by_sigterm() as ending, _open_folder(keep) as folder:
            _show_chapters(folder, keep is not None, seconds, command)
    except KeyboardInterrupt:
        print("stopped.", file=sys.stderr)
        return ending.exit_code
    except Exception as error:
        raise _as_plant_error(error) from None
    return 0


def _show_chapters(folder: Path, is_kept: bool, seconds: float, command: str) -> None:
    screen, began = Screen(), time.monotonic()
    screen.title(f"Penstock {penstock.__version__}: a plant with pumps, presses and ovens")
    with lake.spark_errors_logged(folder), run_server(folder) as server:
        screen.chapter("One server with four doors")
        _show_doors(server, screen)
        screen.chapter("The plant works")
        counts = asyncio.run(_show_traffic(server, seconds, screen))
        screen.chapter("Resume across doors")
        journey = asyncio.run(show_resume(server, counts, screen))
        screen.chapter("A slow subscriber, and why it lost messages")
        losses = asyncio.run(show_losses(server, screen))
        screen.chapter("Archive and query with Spark")
        with lake.spark_session(folder, screen) as spark:
            with screen.progress("waiting for the end of the window of ten seconds"):
                lake.end_shift(server)
            plant_lake = lake.Lake(spark, server, folder / "lake", screen)
            plant_lake.show_archive(journey, losses)
            screen.chapter("Audit: is everything there?")
            plant_lake.show_audit()
    screen.chapter("Next steps")
    _show_next_steps(folder if is_kept else None, command, screen)
    screen.say(f"Done in {time.monotonic() - began:.0f} s.")


def _show_doors(server: PlantServer, screen: Screen) -> None:
    screen.say("It is a process of its own, on free ports, with its log in a data directory:")
    screen.table(
        ("door", "address"),
        [
            ("MQTT", server.addresses["mqtt"]),
            ("gRPC", server.addresses["sidecar"]),
            ("WebSocket", server.websocket_address),
            ("HTTP long poll", f"{server.http_address}/api/v1/streams"),
        ],
    )


async def _show_traffic(server: PlantServer, seconds: float, screen: Screen) -> Counts:
    """Live traffic at all doors, counted on both sides."""
    screen.say(
        f"Sensors, a controller, a web page and work orders, for {seconds:.0f} s and at all four doors."
    )
    counts = await run_plant(server, seconds, screen)
    counted = count_at_doors(server)
    screen.table(COLUMNS, door_rows(counted))
    total = counts.published.total()
    screen.check(
        all(counted[door]["published"] == counts.published[door] for door in DOORS),
        f"the programs got {total:,} acknowledgements, and the server counts as many messages",
    )
    shares = ", ".join(f"{name} {counts.orders[name]}" for name in WORKERS)
    screen.check(
        counts.orders.total() == counts.published["streams"],
        f"{counts.orders.total()} work orders, each done once: {shares}",
    )
    return counts


def _show_next_steps(folder: Path | None, command: str, screen: Screen) -> None:
    data = "data" if folder is None else folder / "data"
    lake_folder = "lake" if folder is None else folder / "lake"
    if folder is not None:
        screen.say(f"The log and the lake of this run are in {folder}.")
    screen.say("Your own server, and the commands for what you have just seen:")
    screen.show(f"{command} serve --data-dir {data}")
    screen.show(f"{command} sub 'plant/#' -v")
    screen.show(f"{command} pub plant/oven-1/temperature 221.5")
    screen.show(f"{command} top")
    screen.show(f"{command} why plant/oven-1/temperature 1")
    screen.show(f"{command} pipeline archive --lake {lake_folder}")
    screen.show(f"{command} pipeline audit --lake {lake_folder} --address {HTTP_ADDRESS}")


@contextmanager
def _open_folder(keep: Path | None) -> Iterator[Path]:
    """Folder for all files: temporary, unless it is to be kept.

    Raises:
        PlantError: the folder to keep them in cannot be used.
    """
    if keep is None:
        with TemporaryDirectory(prefix="penstock-demo-", ignore_cleanup_errors=True) as name:
            yield Path(name)
        return
    try:
        keep.mkdir(parents=True, exist_ok=True)
        is_empty = not any(keep.iterdir())
    except OSError as error:
        raise PlantError(f"--keep {keep}: {error.strerror}") from None
    if not is_empty:
        raise PlantError(f"--keep {keep}: the folder is not empty; give an empty or a new one")
    yield keep.resolve()


class _Ending:
    """Exit code of an interrupted tour."""

    exit_code = INTERRUPTED


@contextmanager
def _interrupted_by_sigterm() -> Iterator[_Ending]:
    """Let SIGTERM end the tour as Ctrl-C does, so that everything is cleaned up."""
    ending = _Ending()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        ending.exit_code = TERMINATED
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield ending
    finally:
        signal.signal(signal.SIGTERM, before)


def _as_plant_error(error: BaseException) -> PlantError:
    """First cause of a failure, as one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, PlantError):
        return error
    return PlantError(f"the demonstration failed: {type(error).__name__}: {error}")
