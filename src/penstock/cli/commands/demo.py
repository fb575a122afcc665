"""`penstock demo`: starts the example `examples/plant`."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

import penstock
from penstock.cli.flags import duration_option
from penstock.cli.output import program_name
from penstock.errors import InvalidConfig, PenstockError
from penstock.extras import require_extra

PLANT = "plant"
WORK_S = 8.0


class DemoFailed(PenstockError):
    """The demonstration could not be shown to its end."""

    code = "demo-failed"


def demo(
    keep: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep the log and the lake in this folder, which must be empty."),
    ] = None,
    seconds: Annotated[
        float, duration_option("--seconds", "Least time that the plant works.", default=WORK_S)
    ] = WORK_S,
) -> None:
    """Show what Penstock can do, in a minute or two: four doors, one log, Spark, and a proof.

    It starts a server of its own on free ports and stops it again. Nothing is left behind without --keep.
    """
    require_extra("spark", "penstock demo")
    tour = load_tour()
    try:
        code = tour.show_tour(keep, seconds, program_name())
    except tour.PlantError as error:
        raise DemoFailed(str(error)) from None
    if code:
        raise typer.Exit(code)


def load_tour() -> Any:
    """Import the example: a wheel has it inside the package, a checkout beside `src`.

    Raises:
        InvalidConfig: there is no such folder.
    """
    package = Path(penstock.__file__).parent
    for folder in (package / "examples", package.parents[1] / "examples"):
        if (folder / PLANT).is_dir():
            sys.path.insert(0, str(folder))
            return import_module(f"{PLANT}.tour")
    raise InvalidConfig("penstock demo: examples/plant is missing; install Penstock again")
