"""Who calls: `authorization` or `username` and `password` in the metadata, or a certificate.

Clients of one user may name themselves, too, with `x-client-id`: rules with `%c` go by that.
Somebody is asked for once on a connection, and again when passwords have changed. Passwords are slow to check
on purpose: that is done in a few threads, and not at all for calls that are over meanwhile. Health and
reflection tell nobody anything that is worth a password.
"""

from asyncio import AbstractEventLoop, Task
from base64 import b64encode
from collections.abc import Callable

import structlog
from msgspec.structs import replace

from penstock.core.access import Access
from penstock.core.counters import Counters
from penstock.core.identity import Identity
from penstock.doors.guard import Guard
from penstock.doors.http.credentials import Credentials
from penstock.doors.http.heads import MAX_CLIENT_ID_BYTES
from penstock.doors.notes import Notes
from penstock.doors.passwords import TooManyWaiting
from penstock.doors.sidecar.answers import refuse
from penstock.doors.sidecar.calls import Call, Cause, Handler, Metadata
from penstock.errors import BadCredentials, InvalidRequest, PenstockError, StorageUnavailable

log = structlog.get_logger("penstock.sidecar")

OPEN_TO_ALL = ("/grpc.health.", "/grpc.reflection.")
"""What the paths of methods begin with that need no identity."""
NOBODY = Identity(None, "")
KNOWN_AT_ONCE = 16
"""How many identities are remembered for one connection."""

Known = dict[tuple[bytes | None, int], Identity]
"""Who has called on one connection: by credentials, and by the generation of the files that proved them."""


class Admission:
    """Lets calls in, or ends them."""

    def __init__(
        self,
        access: Access,
        loop: AbstractEventLoop,
        guard: Guard,
        counters: Counters,
        *,
        is_named_by_certificate: bool,
    ) -> None:
        self._credentials = Credentials(access, loop, guard, is_named_by_certificate=is_named_by_certificate)
        self._counters = counters
        self._loop = loop
        self._notes = Notes(log, loop.time)
        self._checks: set[Task[None]] = set()

    @property
    def checking(self) -> int:
        """How many calls wait for the check of a password."""
        return len(self._checks)

    @property
    def is_named_by_certificate(self) -> bool:
        """The name in a client's certificate is its user name."""
        return self._credentials.is_named_by_certificate

    @is_named_by_certificate.setter
    def is_named_by_certificate(self, is_so: bool) -> None:
        self._credentials.is_named_by_certificate = is_so

    def close(self) -> None:
        """Let nobody in any more whose password would have to be checked."""
        for check in list(self._checks):
            check.cancel()
        self._credentials.close()

    def admit(self, call: Call, known: Known, begin: Callable[[], None]) -> None:
        """Find out who calls, then begin, now or later; or end the call.

        Args:
            known: of the connection; empty at first, and touched by nobody else.
            begin: what to do with a call whose `identity` is set.
        """
        if call.path.startswith(OPEN_TO_ALL):
            call.identity = NOBODY
            begin()
            return
        try:
            check_client_id(client_id_of(call.metadata))
            authorization = authorization_of(call.metadata)
            identity = self._recall(call, known, authorization)
        except PenstockError as error:
            self._turn_away(call, error)
            return
        if identity is None:
            assert authorization is not None  # of who comes without, it is known at once what to think
            self._check(call, known, authorization, begin)
        else:
            call.identity = _named(identity, call)
            begin()

    def _recall(self, call: Call, known: Known, authorization: bytes | None) -> Identity | None:
        key = (authorization, self._credentials.generation)
        identity = known.get(key) or self._credentials.decide_now(authorization, "", call.peer)
        if identity is not None:
            _remember(known, key, identity)
        return identity

    def _check(self, call: Call, known: Known, authorization: bytes, begin: Callable[[], None]) -> None:
        check = self._loop.create_task(self._verify(call, known, authorization, begin))
        self._checks.add(check)
        check.add_done_callback(self._checks.discard)
        call.handler = _Waiting(check)

    async def _verify(
        self, call: Call, known: Known, authorization: bytes, begin: Callable[[], None]
    ) -> None:
        generation = self._credentials.generation
        try:
            identity = await self._credentials.decide(authorization, "", call.peer)
        except PenstockError as error:
            self._turn_away(call, error)
        except TooManyWaiting:
            refuse(call, StorageUnavailable("too many passwords wait to be checked; come again"))
        except Exception:  # whatever went wrong, nobody is let in by it, and nobody waits for ever
            self._notes.write_failure("password not checked", peer=str(call.peer))
            refuse(call, StorageUnavailable("passwords cannot be checked now"))
        else:
            _remember(known, (authorization, generation), identity)
            if not call.is_over:
                call.handler, call.identity = None, _named(identity, call)
                begin()

    def _turn_away(self, call: Call, error: PenstockError) -> None:
        self._counters.authentications_failed += isinstance(error, BadCredentials)
        self._notes.write("call refused", peer=str(call.peer), reason=str(error))
        refuse(call, error)


class _Waiting(Handler):
    """A call whose password is being checked."""

    __slots__ = ("_check",)

    def __init__(self, check: "Task[None]") -> None:
        self._check = check

    def ended(self, cause: Cause) -> None:
        """Nobody wants to know any more."""
        self._check.cancel()


def _remember(known: Known, key: tuple[bytes | None, int], identity: Identity) -> None:
    if len(known) >= KNOWN_AT_ONCE and key not in known:
        known.clear()
    known[key] = identity


def _named(identity: Identity, call: Call) -> Identity:
    client_id = client_id_of(call.metadata)
    return replace(identity, client_id=client_id) if client_id else identity


def client_id_of(metadata: Metadata) -> str:
    """What the client of a call calls itself; nothing if it does not say."""
    return next((value for name, value in metadata if name == "x-client-id" and isinstance(value, str)), "")


def check_client_id(client_id: str) -> None:
    """Refuse a name that nobody can have.

    Raises:
        InvalidRequest: it is too long.
    """
    if len(client_id.encode()) > MAX_CLIENT_ID_BYTES:
        raise InvalidRequest(f"x-client-id has at most {MAX_CLIENT_ID_BYTES} bytes")


def authorization_of(metadata: Metadata) -> bytes | None:
    """What a call brings to prove who makes it, as an `Authorization` header has it; None if nothing.

    Raises:
        BadCredentials: there is something twice, a name without a password, or the other way round.
    """
    found: dict[str, str] = {}
    for name, value in metadata:
        if name not in ("authorization", "username", "password") or not isinstance(value, str):
            continue
        if name in found:
            raise BadCredentials(f"{name} is there twice")
        found[name] = value
    if "authorization" in found:
        if len(found) > 1:
            raise BadCredentials("there is both authorization and a user name or password")
        return found["authorization"].encode()
    if not found:
        return None
    if len(found) == 1:
        raise BadCredentials("username and password come together")
    return b"Basic " + b64encode(f"{found['username']}:{found['password']}".encode())
