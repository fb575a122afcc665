"""Access from a password file and an access list.

Once there is an access list, only what one of its rules allows is allowed. A recently verified password is
remembered as a keyed digest, so that many clients that reconnect at once do not wait for argon2 again.
"""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import BoundedSemaphore
from typing import Self

from msgspec import Struct

from penstock.common.scram import Decoys, ScramKeys, ScramServer
from penstock.common.topics import covers, matches, reaches
from penstock.core.access.access import SLOW_CHECKS_AT_ONCE, Exchange, Rights
from penstock.core.access.acl import Acl, read_acl
from penstock.core.access.identity import Identity
from penstock.core.access.passwords import (
    Credentials,
    RememberedPasswords,
    decoys_like,
    is_password,
    read_passwords,
)


class Sources(Struct, frozen=True):
    """Sources of users and rights, and the rights of anonymous clients."""

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
    """Contents of the files at the last read; None for a file that is not used."""

    sources: Sources
    passwords: dict[str, Credentials] | None
    acl: Acl | None
    decoys: tuple[str, ...]
    """Decoy hashes for unknown users."""
    scram_decoys: Decoys
    """Decoy SCRAM keys for users without keys."""

    def line_of(self, user: str) -> Credentials | None:
        """Return the password file's line of a user."""
        return None if self.passwords is None else self.passwords.get(user)

    def scram_keys_of(self, user: str) -> ScramKeys:
        """Return keys to verify a proof; a decoy costs the same as real keys."""
        decoy = self.scram_decoys.keys_for(user)
        line = self.line_of(user)
        return decoy if line is None or line.scram is None else line.scram


class FileAccess:
    """Users and rights from files.

    Without a password file a name proves nothing: every client without a certificate is anonymous. Without
    an access list every connected client may do everything.
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
        self._outdated: set[str] = set()  # users whose line has changed

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
        """Present sources of users and rights."""
        return self._contents.sources

    @property
    def is_open(self) -> bool:
        """There is nothing that could prove a name, and no rule."""
        sources = self.sources
        return sources.allow_anonymous and not sources.has_files and not sources.has_certificates

    @property
    def has_passwords(self) -> bool:
        """There is a password file."""
        return self._contents.passwords is not None

    def reload(self) -> None:
        """Read both files again; after an error everything stays as it was.

        Raises:
            InvalidConfig: a file cannot be read or understood; the text names file and line.
        """
        self.prepare(self.sources)()

    def prepare(self, sources: Sources) -> Callable[[], None]:
        """Read files without applying them; the returned function applies them and cannot fail.

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
        """Decide at once for anonymous, impossible and recently verified credentials."""
        contents = self._contents
        if user is not None and "\0" in user:
            return False
        if user is None:
            return contents.sources.allow_anonymous
        if contents.passwords is None:
            # A name proves nothing, and no client may pass for the owner of a certificate.
            return contents.sources.allow_anonymous and not contents.sources.has_certificates
        if not password:
            return False
        line = contents.line_of(user)
        # A wrong password gets no quick "no": that would reveal which users exist and were here recently.
        return (line is not None and self._remembered.has(user, line.hash, password)) or None

    def verify(self, user: str | None, password: bytes | None) -> bool:
        """Check a password with argon2, which takes as long for users that do not exist."""
        with self._slots:
            is_right = self.verify_now(user, password)  # it may have been verified while we waited
            if is_right is not None or user is None or password is None:
                return bool(is_right)
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
        """Begin SCRAM-SHA-256 if there is a password file; a user without keys fails at the end."""
        if method != ScramServer.method or self._contents.passwords is None:
            return None
        return ScramServer(self._scram_keys_of)

    def proven_user(self, identity: Identity) -> str | None:
        """Without a password file only a certificate proves a name."""
        return self._proven(identity).user

    def is_known(self, identity: Identity) -> bool:
        """Users have a line, or came with a certificate; the anonymous are allowed."""
        if identity.is_certified:
            return self.sources.has_certificates
        user = self._proven(identity).user
        return self.sources.allow_anonymous if user is None else self._contents.line_of(user) is not None

    def is_outdated(self, identity: Identity) -> bool:
        """Return whether the last reload changed the user's line."""
        return identity.user in self._outdated and not identity.is_certified

    def rights_of(self, identity: Identity) -> Rights:
        """Return whether there are rules for a client."""
        acl, proven = self._contents.acl, self._proven(identity)
        if acl is None:
            return Rights(publish=True, subscribe=True)
        return Rights(any(acl.publish.filters_for(proven)), any(acl.subscribe.filters_for(proven)))

    def may_publish(self, identity: Identity, topic: str) -> bool:
        """Return whether a publish rule matches the topic."""
        acl = self._contents.acl
        return acl is None or any(
            matches(rule, topic) for rule in acl.publish.filters_for(self._proven(identity))
        )

    def may_subscribe(self, identity: Identity, filter: str) -> bool:
        """Return whether a single subscribe rule covers the whole filter."""
        acl = self._contents.acl
        return acl is None or any(
            covers(rule, filter) for rule in acl.subscribe.filters_for(self._proven(identity))
        )

    def may_read(self, identity: Identity, topic: str) -> bool:
        """Return whether a subscribe rule matches the topic."""
        acl = self._contents.acl
        return acl is None or any(
            matches(rule, topic) for rule in acl.subscribe.filters_for(self._proven(identity))
        )

    def may_read_below(self, identity: Identity, level: str) -> bool:
        """Return whether a subscribe rule can match a topic at or below the level."""
        acl = self._contents.acl
        return acl is None or any(
            reaches(rule, level) for rule in acl.subscribe.filters_for(self._proven(identity))
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
