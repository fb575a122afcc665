"""Who may come in and what they may do, the same at every door.

`OpenAccess` lets everyone do everything. `FileAccess` reads a password file and an access list, and once
there is a list, nothing is allowed that none of its rules allows. That clients may not publish to the
server's own topics, below `$`, is no matter of rights: core refuses that by itself.

Passwords are checked with argon2, which is slow on purpose. So a door asks `verify_now` first, on the
event loop, and only where that has no answer calls `verify` in a thread. What was verified a moment ago
is remembered as a keyed digest, so that many clients coming back at once need not wait for argon2 again.
Where a protocol allows to prove a password instead of sending it, a door asks for an `exchange`.
"""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import BoundedSemaphore
from typing import Protocol, Self

from msgspec import Struct

from penstock.core.acl import Acl, is_level, read_acl
from penstock.core.identity import Identity
from penstock.core.passwords import (
    Credentials,
    RememberedPasswords,
    decoys_like,
    is_password,
    read_passwords,
)
from penstock.core.scram import Decoys, ScramKeys, ScramServer
from penstock.core.topics import covers, matches

__all__ = [
    "ADMIN_FILTER",
    "SLOW_CHECKS_AT_ONCE",
    "Access",
    "Exchange",
    "FileAccess",
    "Identity",
    "OpenAccess",
    "Sources",
    "is_level",
]

ADMIN_FILTER = "$SYS/#"
"""Whoever may subscribe to this may look at clients, totals and figures, and ask about everybody."""
SLOW_CHECKS_AT_ONCE = 4
"""Each takes the 64 MiB that argon2 wants by default, so this many are part of the memory ceiling."""


class Exchange(Protocol):
    """Messages to and fro until it is proven who somebody is; never slow."""

    @property
    def method(self) -> str:
        """How protocols call this kind of exchange."""

    @property
    def is_done(self) -> bool:
        """Whether it has come to a good end."""

    @property
    def user(self) -> str | None:
        """Who it turned out to be, once it is done."""

    def answer(self, data: bytes) -> bytes:
        """Take the client's next message and give ours; both may be empty, the client's only at first.

        Raises:
            BadCredentials: nobody comes in by this exchange any more.
        """


class Access(Protocol):
    """Decides who comes in and what they may do. Nothing but `verify` may take long."""

    @property
    def generation(self) -> int:
        """Rises when what is known of users and rights changes."""

    @property
    def is_open(self) -> bool:
        """Anyone may take any name and do everything, so that a name means nothing."""

    def verify_now(self, user: str | None, password: bytes | None) -> bool | None:
        """Tell whether these credentials are good; None means that only `verify` can tell."""

    def verify(self, user: str | None, password: bytes | None) -> bool:
        """Tell whether these credentials are good; it is slow and belongs into a thread."""

    def exchange(self, method: str) -> Exchange | None:
        """Begin to find out who somebody is in this way; None if there is no such way here."""

    def is_known(self, identity: Identity) -> bool:
        """Tell whether there still is such a user; after a reload there may not be."""

    def is_outdated(self, identity: Identity) -> bool:
        """Tell, right after a reload, whether it has replaced the password that this client came in with."""

    def may_publish(self, identity: Identity, topic: str) -> bool:
        """Tell whether messages to this topic are accepted from this client."""

    def may_subscribe(self, identity: Identity, filter: str) -> bool:
        """Tell whether every topic of this filter, the inner one of a shared filter, may be read."""

    def may_read(self, identity: Identity, topic: str) -> bool:
        """Tell whether the retained value and the history of this topic may be read."""


class OpenAccess:
    """Everyone may come in and do everything, with any name or none."""

    generation = 0
    is_open = True

    def verify_now(self, user: str | None, password: bytes | None) -> bool | None:
        """Accept anyone."""
        return True

    def verify(self, user: str | None, password: bytes | None) -> bool:
        """Accept anyone."""
        return True

    def exchange(self, method: str) -> Exchange | None:
        """There are no passwords that could be proven."""
        return None

    def is_known(self, identity: Identity) -> bool:
        """Everyone is welcome, before and after."""
        return True

    def is_outdated(self, identity: Identity) -> bool:
        """There are no passwords that could be replaced."""
        return False

    def may_publish(self, identity: Identity, topic: str) -> bool:
        """Allow any topic."""
        return True

    def may_subscribe(self, identity: Identity, filter: str) -> bool:
        """Allow any filter."""
        return True

    def may_read(self, identity: Identity, topic: str) -> bool:
        """Allow any topic."""
        return True


class Sources(Struct, frozen=True):
    """Where users and rights come from, and what those without a name may do."""

    password_file: Path | None
    acl_file: Path | None
    allow_anonymous: bool
    has_certificates: bool = False
    """Users may also be named by their certificates, which a door verifies. Such users need no line in the
    password file, nor such a file."""

    @property
    def has_files(self) -> bool:
        """There is something to read."""
        return self.password_file is not None or self.acl_file is not None


class Contents(Struct, frozen=True):
    """What the files said when they were read last; None stands for a file that is not used."""

    sources: Sources
    passwords: dict[str, Credentials] | None
    acl: Acl | None
    decoys: tuple[str, ...]
    """Hashes for names that nobody has."""
    scram_decoys: Decoys
    """Keys for names that nobody has, or not for SCRAM."""

    def line_of(self, user: str) -> Credentials | None:
        """What the password file says about a user."""
        return None if self.passwords is None else self.passwords.get(user)

    def scram_keys_of(self, user: str) -> ScramKeys:
        """Keys to check a proof with; who has none gets a decoy, which everyone pays for."""
        decoy = self.scram_decoys.keys_for(user)
        line = self.line_of(user)
        return decoy if line is None or line.scram is None else line.scram


class FileAccess:
    """Users and rights from files.

    Without a password file a name proves nothing, so everyone without a certificate is anonymous. Without
    an access list everyone who came in may do everything.
    """

    def __init__(self, sources: Sources, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Read the files.

        Raises:
            InvalidConfig: a file cannot be read or understood; the text names file and line.
        """
        self._secret = os.urandom(32)  # stays with us, so what a stranger sees is the same after a reload
        self._remembered = RememberedPasswords(monotonic)
        self._slots = BoundedSemaphore(SLOW_CHECKS_AT_ONCE)
        # Replaced as a whole, so that threads see the old or the new one:
        self._contents = read_files(sources, self._secret)
        self.generation = 0
        self._outdated: set[str] = set()  # users who had another line

    @classmethod
    def load(
        cls,
        password_file: Path | None,
        acl_file: Path | None,
        allow_anonymous: bool,
        monotonic: Callable[[], float] = time.monotonic,
        has_certificates: bool = False,
    ) -> Self:
        """Read both files.

        Args:
            has_certificates: users may also be named by their certificates.

        Raises:
            InvalidConfig: a file cannot be read or understood; the text names file and line.
        """
        return cls(Sources(password_file, acl_file, allow_anonymous, has_certificates), monotonic)

    @property
    def sources(self) -> Sources:
        """Where users and rights come from at present."""
        return self._contents.sources

    @property
    def is_open(self) -> bool:
        """There is nothing that could prove a name, and no rule."""
        sources = self.sources
        return sources.allow_anonymous and not sources.has_files and not sources.has_certificates

    def reload(self) -> None:
        """Read both files again; after an error everything stays as it was.

        Raises:
            InvalidConfig: a file cannot be read or understood; the text names file and line.
        """
        self.prepare(self.sources)()

    def prepare(self, sources: Sources) -> Callable[[], None]:
        """Read files, these or others; what they say counts when the answer is called, which cannot fail.

        Raises:
            InvalidConfig: a file cannot be read or understood; the text names file and line.
        """
        return partial(self._take, read_files(sources, self._secret))

    def _take(self, now: Contents) -> None:
        before, self._contents = self._contents, now
        self.generation += 1
        self._outdated = {
            user for user, line in (before.passwords or {}).items() if now.line_of(user) not in (None, line)
        }

    def verify_now(self, user: str | None, password: bytes | None) -> bool | None:
        """Answer for the anonymous, for the impossible and for who was verified a moment ago."""
        contents = self._contents
        if user is not None and "\0" in user:
            return False
        if user is None:
            return contents.sources.allow_anonymous
        if contents.passwords is None:
            # A name proves nothing, and nobody is to be taken for the owner of a certificate.
            return contents.sources.allow_anonymous and not contents.sources.has_certificates
        if not password:
            return False
        line = contents.line_of(user)
        # A wrong password gets no quick "no": that would tell who exists and was here lately.
        return (line is not None and self._remembered.has(user, line.hash, password)) or None

    def verify(self, user: str | None, password: bytes | None) -> bool:
        """Check a password with argon2, which takes as long for users that do not exist."""
        with self._slots:
            answer = self.verify_now(user, password)  # it may have been verified while we waited
            if answer is not None or user is None or password is None:
                return bool(answer)
            contents = self._contents
            line = contents.line_of(user)
            if line is None:
                is_password(password, contents.decoys[hash(user) % len(contents.decoys)])
                return False
            if not is_password(password, line.hash):
                return False
            if self._contents.line_of(user) != line:  # the files were read again meanwhile
                return False
            self._remembered.add(user, line.hash, password)
            return True

    def exchange(self, method: str) -> Exchange | None:
        """SCRAM-SHA-256, if there is a password file; who has no keys in it fails at the end."""
        if method != ScramServer.method or self._contents.passwords is None:
            return None
        return ScramServer(self._scram_keys_of)

    def is_known(self, identity: Identity) -> bool:
        """Users have a line, or came with a certificate; the anonymous are allowed."""
        if identity.is_certified:
            return self.sources.has_certificates
        user = self._proven(identity).user
        return self.sources.allow_anonymous if user is None else self._contents.line_of(user) is not None

    def is_outdated(self, identity: Identity) -> bool:
        """Tell whether the user's line was another one before the last reload."""
        return identity.user in self._outdated and not identity.is_certified

    def may_publish(self, identity: Identity, topic: str) -> bool:
        """Tell whether some publish rule matches the topic."""
        acl = self._contents.acl
        return acl is None or any(
            matches(rule, topic) for rule in acl.publish.filters_for(self._proven(identity))
        )

    def may_subscribe(self, identity: Identity, filter: str) -> bool:
        """Tell whether a single subscribe rule covers the whole filter."""
        acl = self._contents.acl
        return acl is None or any(
            covers(rule, filter) for rule in acl.subscribe.filters_for(self._proven(identity))
        )

    def may_read(self, identity: Identity, topic: str) -> bool:
        """Tell whether some subscribe rule matches the topic."""
        acl = self._contents.acl
        return acl is None or any(
            matches(rule, topic) for rule in acl.subscribe.filters_for(self._proven(identity))
        )

    def _scram_keys_of(self, user: str) -> ScramKeys:
        return self._contents.scram_keys_of(user)  # of the present contents, whenever it is asked

    def _proven(self, identity: Identity) -> Identity:
        """Without a password file only a certificate proves a name."""
        is_proven = self._contents.passwords is not None or self.sources.has_certificates
        return identity if is_proven else Identity(None, identity.client_id)


def read_files(sources: Sources, secret: bytes) -> Contents:
    """Read the password file and the access list, as far as there are any; the secret is for decoys."""
    passwords = None if sources.password_file is None else read_passwords(sources.password_file)
    has_users = passwords is not None or sources.has_certificates
    acl = None if sources.acl_file is None else read_acl(sources.acl_file, has_users=has_users)
    users = (passwords or {}).values()
    scram_decoys = Decoys(secret, (user.scram for user in users if user.scram is not None))
    return Contents(sources, passwords, acl, decoys_like(users), scram_decoys)
