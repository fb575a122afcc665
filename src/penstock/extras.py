"""Extras: optional packages of some parts, and how to install them. A check loads none."""

import json
import shlex
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

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
    """Return the install command for this very Python, from where Penstock itself was installed."""
    python = shlex.quote(sys.executable)
    return f"{python} -m pip install {shlex.quote(requirement(extra, _origin()))}"


def requirement(extra: str, origin: dict[str, object]) -> str:
    """The requirement of an extra: of the checkout, wheel, repository or index that Penstock is from.

    Args:
        origin: the record of pip about an installation by address (PEP 610); empty for one from an index.
    """
    address = str(origin.get("url", ""))
    if not address:
        return f"penstock[{extra}]"
    parts = urlsplit(address)
    if parts.scheme == "file":
        path = Path(unquote(parts.path))
        if path.exists():
            return f"{path}[{extra}]"
        return f"{path.name}[{extra}]"  # it was moved: the reader knows where
    tool = origin.get("vcs_info")
    prefix = f"{tool['vcs']}+" if isinstance(tool, dict) and "vcs" in tool else ""
    return f"penstock[{extra}] @ {prefix}{address}"


def _origin() -> dict[str, object]:
    with suppress(PackageNotFoundError, ValueError):
        text = distribution("penstock").read_text("direct_url.json")
        found = json.loads(text) if text else {}
        return found if isinstance(found, dict) else {}
    return {}
