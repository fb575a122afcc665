"""Build of this installation: with a compiled hot path, or pure Python.

Nothing of the server is imported to find out. `hatch_build.py` makes both builds from the same sources.
"""

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec

COMPILED_IN_EVERY_BUILD = "penstock.runs"
"""Module that each compiled build has compiled, because everything else there uses it."""


def is_compiled() -> bool:
    """Return whether the hot path is compiled."""
    found = find_spec(COMPILED_IN_EVERY_BUILD)
    return found is not None and (found.origin or "").endswith(tuple(EXTENSION_SUFFIXES))


def build_name() -> str:
    """Name of the build for programs: `compiled` or `pure`."""
    return "compiled" if is_compiled() else "pure"


def build_text() -> str:
    """Name of the build for people."""
    return "compiled" if is_compiled() else "pure Python"
