"""Command line of the example: `python -m examples.plant [--keep FOLDER] [--seconds N]`."""

import argparse
import sys
from pathlib import Path


def main() -> int:
    """Show the tour; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.plant", description="Four doors, one log, Spark, and a proof."
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the log and the lake here")
    parser.add_argument("--seconds", type=float, default=8.0, help="how long the plant works, at least")
    options = parser.parse_args()
    try:
        from .screen import PlantError  # noqa: PLC0415 - a missing package becomes one line
        from .tour import show_tour  # noqa: PLC0415
    except ModuleNotFoundError as error:
        print(f"error: {error}; the example needs pip install 'penstock[spark]'", file=sys.stderr)
        return 1
    try:
        return show_tour(options.keep, options.seconds)
    except PlantError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
