"""Access port: decides which clients connect, and what they may publish and read.

`OpenAccess` allows everything; `file_access.py` reads users and rules from files. The reserved topics below
`$` are not a matter of rights: core refuses publishes to them by itself.

A password check with argon2 is slow on purpose. A door therefore calls `verify_now` on the event loop first,
and only if that returns None calls `verify` in a thread. Where a protocol lets a client prove its password
without sending it, the door begins an `exchange`.
"""

from typing import Protocol

from msgspec import Struct

from penstock.core.access.identity import Identity

ADMIN_FILTER = "$SYS/#"
"""Right of administrators: clients that may subscribe to this see all clients and statistics."""
SLOW_CHECKS_AT_ONCE = 4
"""Each takes the 64 MiB that argon2 wants by default, so this many are part of the memory ceiling."""


class Rights(Struct, frozen=True):
    """Summary of what a client may do."""

    publish: bool
    """It may publish to some topic."""
    subscribe: bool
    """It may read some topic."""


class Exchange(Protocol):
    """Authentication exchange in several messages; never slow."""

    @property
    def method(self) -> str:
        """Name of the method in protocols."""

    @property
    def is_done(self) -> bool:
        """The exchange has succeeded."""

    @property
    def user(self) -> str | None:
        """The proven user, once the exchange is done."""

    def respond(self, data: bytes) -> bytes:
        """Take the client's next message and return the response; either may be empty.

        Raises:
            BadCredentials: the exchange has failed.
        """


class Access(Protocol):
    """Decides about connections, publishes and reads. Only `verify` may be slow."""

    @property
    def generation(self) -> int:
        """Rises when what is known of users and rights changes."""

    @property
    def is_open(self) -> bool:
        """Anyone may take any name and do everything, so that a name means nothing."""

    @property
    def has_passwords(self) -> bool:
        """There are users that log in with a password."""

    def verify_now(self, user: str | None, password: bytes | None) -> bool | None:
        """Check credentials on the loop; None means that only `verify` can decide."""

    def verify(self, user: str | None, password: bytes | None) -> bool:
        """Check credentials; slow, so call it in a thread."""

    def exchange(self, method: str) -> Exchange | None:
        """Begin an exchange by a method; None if it is not supported."""

    def proven_user(self, identity: Identity) -> str | None:
        """Return the user that owns what a client leaves; None if nothing proves a name, or there is none."""

    def is_known(self, identity: Identity) -> bool:
        """Return whether a user still exists; a reload may remove it."""

    def is_outdated(self, identity: Identity) -> bool:
        """Return whether the last reload replaced the password of this client."""

    def rights_of(self, identity: Identity) -> Rights:
        """Return what a client may do at all."""

    def may_publish(self, identity: Identity, topic: str) -> bool:
        """Return whether a client may publish to a topic."""

    def may_subscribe(self, identity: Identity, filter: str) -> bool:
        """Return whether a client may read every topic of a filter (of a shared filter, the inner one)."""

    def may_read(self, identity: Identity, topic: str) -> bool:
        """Return whether a client may read the retained value and history of a topic."""

    def may_read_below(self, identity: Identity, level: str) -> bool:
        """Return whether a client may read some topic at or below a level, if there is such a topic."""


class OpenAccess:
    """Everyone may come in and do everything, with any name or none."""

    generation = 0
    is_open = True
    has_passwords = False

    def verify_now(self, user: str | None, password: bytes | None) -> bool | None:
        """Accept anyone."""
        return True

    def verify(self, user: str | None, password: bytes | None) -> bool:
        """Accept anyone."""
        return True

    def exchange(self, method: str) -> Exchange | None:
        """There are no passwords that could be proven."""
        return None

    def proven_user(self, identity: Identity) -> str | None:
        """Names prove nothing."""
        return None

    def is_known(self, identity: Identity) -> bool:
        """Everyone is welcome, before and after."""
        return True

    def is_outdated(self, identity: Identity) -> bool:
        """There are no passwords that could be replaced."""
        return False

    def rights_of(self, identity: Identity) -> Rights:
        """Allow everything."""
        return Rights(publish=True, subscribe=True)

    def may_publish(self, identity: Identity, topic: str) -> bool:
        """Allow any topic."""
        return True

    def may_subscribe(self, identity: Identity, filter: str) -> bool:
        """Allow any filter."""
        return True

    def may_read(self, identity: Identity, topic: str) -> bool:
        """Allow any topic."""
        return True

    def may_read_below(self, identity: Identity, level: str) -> bool:
        """Allow any topic."""
        return True
