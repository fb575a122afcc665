"""Who asks on one connection: found out once, and again when somebody else asks or passwords have changed.

A password takes a while to check. Meanwhile nothing more of the connection is parsed: of a stranger's body no
more is read than what has come already.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

import structlog

from penstock.core.identity import Identity
from penstock.doors.http.problems import RETRY_AFTER_S, headers_of, status_of
from penstock.doors.http.requests import Refusal, Request
from penstock.doors.http.waiting import PASSWORD
from penstock.doors.passwords import TooManyWaiting
from penstock.errors import BadCredentials, QuotaExceeded, StorageUnavailable

if TYPE_CHECKING:
    from penstock.doors.http.door import HttpDoor
    from penstock.doors.http.protocol import HttpConnection

log = structlog.get_logger("penstock.http")


class Recognition:
    """Says of each request who asks, or refuses it.

    Args:
        pending: the requests that have not begun, in their order.
    """

    __slots__ = ("_check", "_connection", "_door", "_identity", "_known_as", "_pending")

    def __init__(self, connection: "HttpConnection", door: "HttpDoor", pending: Iterable[Request]) -> None:
        self._connection = connection
        self._door = door
        self._pending = pending
        # On one connection it is nearly always the same.
        self._known_as: tuple[bytes | None, str, int] | None = None
        self._identity: Identity | None = None
        self._check: asyncio.Task[None] | None = None

    @property
    def is_checking(self) -> bool:
        """A password is being checked."""
        return self._check is not None

    def look_at(self, request: Request) -> None:
        """Find out who asks, unless that is known, does not matter, or another one is being looked at."""
        if request.refusal is None and not self._knows(request) and self._check is None:
            self._ask(request)

    def cancel(self) -> None:
        """Check no password any more: there is nobody to tell."""
        if self._check is not None:
            self._check.cancel()
            self._check = None

    def close(self) -> None:
        """There is no connection any more; it refers to us."""
        self.cancel()
        del self._connection

    def _knows(self, request: Request) -> bool:
        """Whether this is who asked before, or it does not matter: then there is no need to ask again."""
        known = self._known_as
        if (
            known is not None
            and known[0] == request.authorization
            and known[1] == request.client_id
            and known[2] == self._door.credentials.generation
        ):
            assert self._identity is not None
            request.identity, request.is_proven = self._identity, True
        return request.is_proven

    def _ask(self, request: Request) -> None:
        credentials = self._door.credentials
        try:
            identity = credentials.decide_now(request.authorization, request.client_id, request.peer)
        except BadCredentials as error:
            self._turn_away(request, error)
            return
        if identity is None:
            self._connection.shut(PASSWORD)
            self._check = self._door.loop.create_task(self._verify(request))
        else:
            self._recognize(request, identity)

    async def _verify(self, request: Request) -> None:
        assert request.authorization is not None
        try:
            identity = await self._door.credentials.decide(
                request.authorization, request.client_id, request.peer
            )
        except BadCredentials as error:
            self._turn_away(request, error)
        except QuotaExceeded as error:
            request.refusal = _put_off(status_of(error), str(error), error.code)
        except TooManyWaiting:
            request.refusal = _put_off(503, "too many passwords wait to be checked", "too-busy")
        except Exception:  # whatever went wrong, nobody is let in by it, and nobody waits for ever
            log.exception("password not checked", peer=str(request.peer))
            request.refusal = _put_off(503, "passwords cannot be checked now", StorageUnavailable.code)
        else:
            self._recognize(request, identity)
        self._check = None
        for other in self._pending:
            self.look_at(other)
        if self._check is None:
            self._connection.open(PASSWORD)
        else:
            self._connection.go_on()

    def _recognize(self, request: Request, identity: Identity) -> None:
        self._known_as = (request.authorization, request.client_id, self._door.credentials.generation)
        self._identity = request.identity = identity
        request.is_proven = True

    def _turn_away(self, request: Request, error: BadCredentials) -> None:
        self._door.on_stranger(is_named=request.authorization is not None)
        request.refusal = Refusal(401, str(error), code=error.code, headers=headers_of(error), is_fatal=False)


def _put_off(status: int, detail: str, code: str) -> Refusal:
    """What somebody is told who may come again in a while."""
    headers = [("Retry-After", str(RETRY_AFTER_S))]
    return Refusal(status, detail, code=code, headers=headers, is_fatal=False)
