"""Extras: optional packages of some parts, and how to install them. A check loads none."""

import shlex
import sys
from importlib.util import find_spec

from penstock.errors import InvalidConfig

PACKAGES = {
    "dashboard": ("altair", "pandas", "streamlit", "uvicorn"),
    "log": ("pyarrow", "rocksdict"),
    "spark": ("pandas", "pyarrow", "pyspark"),
}
"""By extra, what cannot be done without."""


def require_extra(extra: str, wanted_by: str) -> None:
    """Check that an extra is installed.

    Args:
        wanted_by: the setting or command that cannot do without, for the complaint.

    Raises:
        InvalidConfig: it is not.
    """
    if any(find_spec(package) is None for package in PACKAGES[extra]):
        raise InvalidConfig(f"{wanted_by}: needs the extra `{extra}`: {how_to_get(extra)}")


def how_to_get(extra: str) -> str:
    """Return the install command for this very Python; another pip might install elsewhere."""
    python = shlex.quote(sys.executable)
    return f"{python} -m pip install 'penstock[{extra}]', or '.[{extra}]' in a checkout"
