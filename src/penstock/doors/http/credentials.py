"""Who is asking: an `Authorization` header or a certificate, and the identity behind it.

`Basic` is RFC 7617. `Bearer` is for those who can only send a token: it is `user:password`, as it is or in
base64. Passwords are slow to check on purpose: what was verified a moment ago is known at once, the rest is
done in a few threads, and not at all for who has gone meanwhile.
"""

import asyncio
from base64 import b64decode, urlsafe_b64decode
from binascii import Error
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from penstock.core.access import SLOW_CHECKS_AT_ONCE, Access, Identity
from penstock.doors.base import Peer
from penstock.errors import BadCredentials

REFUSED = "there is no such user with that password"


class Credentials:
    """Finds out who somebody is."""

    def __init__(
        self, access: Access, loop: asyncio.AbstractEventLoop, *, is_named_by_certificate: bool
    ) -> None:
        self._access = access
        self._loop = loop
        self._is_named_by_certificate = is_named_by_certificate
        self._checks: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """Check no more passwords."""
        if self._checks is not None:
            self._checks.shutdown(wait=False, cancel_futures=True)

    @property
    def generation(self) -> int:
        """Rises when everyone has to be asked again."""
        return self._access.generation

    def decide_now(self, authorization: bytes | None, client_id: str, peer: Peer) -> Identity | None:
        """Who it is; None if only `decide` can tell.

        Raises:
            BadCredentials: nobody who may come in.
        """
        if self._is_named_by_certificate and peer.certificate_name is not None:
            return Identity(peer.certificate_name, client_id, is_certified=True)
        user, password = (None, None) if authorization is None else parse_authorization(authorization)
        verdict = self._access.verify_now(user, password)
        if verdict is False:
            raise BadCredentials(
                REFUSED if user is not None else "who are you? Give a user name and password"
            )
        return Identity(user, client_id) if verdict else None

    async def decide(self, authorization: bytes, client_id: str) -> Identity:
        """Who it is, found out in a thread.

        Raises:
            BadCredentials: nobody who may come in.
        """
        if self._checks is None:
            self._checks = ThreadPoolExecutor(SLOW_CHECKS_AT_ONCE, "password")
        user, password = parse_authorization(authorization)
        verify = partial(self._access.verify, user, password)
        generation, is_verified = -1, False
        while generation != self._access.generation:  # the files may be read again meanwhile
            generation = self._access.generation
            is_verified = await self._loop.run_in_executor(self._checks, verify)
        if not is_verified:
            raise BadCredentials(REFUSED)
        return Identity(user, client_id)


def parse_authorization(value: bytes) -> tuple[str, bytes]:
    """User and password of an `Authorization` header.

    Raises:
        BadCredentials: it is of another kind, or not well formed.
    """
    scheme, _, token = value.partition(b" ")
    token = token.strip()
    if scheme.lower() == b"bearer" and b":" in token:
        pair = token
    elif scheme.lower() in (b"basic", b"bearer"):
        pair = _decoded(token)
    else:
        raise BadCredentials("Authorization is neither Basic nor Bearer")
    user, colon, password = pair.partition(b":")
    if not colon:
        raise BadCredentials("Authorization has no user and password with a colon between them")
    try:
        return user.decode(), password
    except UnicodeDecodeError:
        raise BadCredentials("the user name is not UTF-8") from None


def _decoded(token: bytes) -> bytes:
    padded = token + b"=" * (-len(token) % 4)
    try:
        if b"-" in token or b"_" in token:
            return urlsafe_b64decode(padded)
        return b64decode(padded, validate=True)
    except (Error, ValueError):
        raise BadCredentials("Authorization is not base64") from None
