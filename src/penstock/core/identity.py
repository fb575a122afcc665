"""Who somebody is: a user name that was proven, or none, and a client id that anyone may choose."""

from msgspec import Struct

EVERY_USER = "*"


class Identity(Struct, frozen=True):
    """Who somebody turned out to be; `user` is None for who came without a name."""

    user: str | None
    client_id: str
    is_certified: bool = False
    """A certificate proved the name, no password."""


def is_user_name(name: str) -> bool:
    """Tell whether both files can hold this name and mean one user by it."""
    return (
        name.isprintable()
        and name == name.strip()
        and name not in ("", EVERY_USER)
        and not set(name) & {*":#"}
    )
