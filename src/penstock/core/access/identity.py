"""Identity of a client: a proven user name or none, and a client id that anyone may choose."""

from msgspec import Struct

EVERY_USER = "*"


class Identity(Struct, frozen=True):
    """Identity of a client; `user` is None for an anonymous one."""

    user: str | None
    client_id: str
    is_certified: bool = False
    """A certificate proved the name, no password."""


def is_user_name(name: str) -> bool:
    """Return whether a name is valid in both files."""
    return (
        name.isprintable()
        and name == name.strip()
        and name not in ("", EVERY_USER)
        and not set(name) & {*":#"}
    )
