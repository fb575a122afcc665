"""Logins of web pages: tokens that stand for a user after a password was checked once.

A browser keeps a token instead of the password. Tokens are random, live in memory as digests, and end by
logout, by age, after a time without use, and when the user's password changes or the user is removed. Their
number is bounded for each user and in all; the least recently used one makes room.
"""

from hashlib import sha256
from secrets import token_urlsafe

from msgspec import Struct

from penstock.core.access.access import Access
from penstock.core.access.identity import Identity
from penstock.core.runtime.clock import Clock

TOKEN_BYTES = 32
MOST = 10_000
"""Tokens of all users."""
MOST_PER_USER = 32
COOKIE = "penstock_token_"
"""Beginning of the cookie's name. Cookies know no ports, so each server on a host needs a name of its own."""


class Login(Struct, frozen=True):
    """A user that has logged in."""

    user: str
    began_at: float
    used_at: float


class Logins:
    """All tokens of a server.

    Args:
        server: name that tells this server from others on the same host.
        lifetime_s: longest life of a token.
        idle_s: longest time between two uses.
    """

    def __init__(
        self, access: Access, clock: Clock, server: str, *, lifetime_s: float, idle_s: float
    ) -> None:
        self.cookie = COOKIE + sha256(server.encode()).hexdigest()[:8]
        self.lifetime_s = lifetime_s
        self.idle_s = idle_s
        self._access = access
        self._clock = clock
        self._logins: dict[bytes, Login] = {}  # by digest, the least recently used first

    def __len__(self) -> int:
        return len(self._logins)

    def configure(self, *, lifetime_s: float, idle_s: float) -> None:
        """Apply other limits, to present tokens as well."""
        self.lifetime_s, self.idle_s = lifetime_s, idle_s

    def begin(self, user: str) -> str:
        """Return a token for a user whose password was checked."""
        own = [digest for digest, login in self._logins.items() if login.user == user]
        for digest in own[: max(len(own) + 1 - MOST_PER_USER, 0)]:
            del self._logins[digest]
        if len(self._logins) >= MOST:
            del self._logins[next(iter(self._logins))]
        token, now = token_urlsafe(TOKEN_BYTES), self._clock.monotonic()
        self._logins[_digest(token.encode())] = Login(user, now, now)
        return token

    def find(self, token: bytes) -> str | None:
        """Return the user of a token, which is used with that; None if it has ended."""
        digest, now = _digest(token), self._clock.monotonic()
        login = self._logins.pop(digest, None)
        if login is None or now >= login.began_at + self.lifetime_s or now >= login.used_at + self.idle_s:
            return None
        self._logins[digest] = Login(login.user, login.began_at, now)
        return login.user

    def end(self, token: bytes) -> None:
        """End a token. Idempotent."""
        self._logins.pop(_digest(token), None)

    def recheck(self) -> None:
        """End the tokens of users that the last reload removed, or gave another password."""
        self._logins = {
            digest: login
            for digest, login in self._logins.items()
            if self._is_valid(Identity(login.user, ""))
        }

    def _is_valid(self, identity: Identity) -> bool:
        return self._access.is_known(identity) and not self._access.is_outdated(identity)


def _digest(token: bytes) -> bytes:
    return sha256(token).digest()
