"""Whether the packages that a data directory needs are installed; asking loads none of them."""

from importlib.util import find_spec

from penstock.errors import InvalidConfig

PACKAGES = ("rocksdict", "pyarrow")
"""What the extra `log` brings."""
_HINT = "needs the extra `log`: pip install 'penstock[log]', or '.[log]' in a checkout"


def require_extra(wanted_by: str = "data_dir") -> None:
    """Check that the extra `log` is installed.

    Args:
        wanted_by: the setting or command that cannot do without, for the complaint.

    Raises:
        InvalidConfig: it is not.
    """
    if any(find_spec(package) is None for package in PACKAGES):
        raise InvalidConfig(f"{wanted_by}: {_HINT}")
