"""Whether the packages that the dashboard needs are installed; asking loads none of them."""

from importlib.util import find_spec

from penstock.errors import InvalidConfig

PACKAGES = ("streamlit", "altair")
"""What the extra `dashboard` brings."""
_HINT = "needs the extra `dashboard`: pip install 'penstock[dashboard]', or '.[dashboard]' in a checkout"


def require_extra(wanted_by: str) -> None:
    """Check that the extra `dashboard` is installed.

    Args:
        wanted_by: the command or flag that cannot do without, for the complaint.

    Raises:
        InvalidConfig: it is not.
    """
    if any(find_spec(package) is None for package in PACKAGES):
        raise InvalidConfig(f"{wanted_by}: {_HINT}")
