"""Why there are no fresh figures, in words: what was tried, what happened, and what to try."""

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from penstock.client import ConnectionLost, ConnectionRefused
from penstock.dashboard.source import Source
from penstock.errors import BadCredentials, NotAuthorized, PenstockError


class Kind(StrEnum):
    """What is in the way."""

    UNREACHABLE = "unreachable"
    BAD_CREDENTIALS = "bad-credentials"
    NOT_AUTHORIZED = "not-authorized"
    STRANGE = "strange"


TITLES = {
    Kind.UNREACHABLE: "No Penstock server answers",
    Kind.BAD_CREDENTIALS: "The server does not accept the name and password",
    Kind.NOT_AUTHORIZED: "This user may not see the server's figures",
    Kind.STRANGE: "The answer is not that of a Penstock server",
}


class Trouble(NamedTuple):
    """Something that keeps the figures from being fresh."""

    kind: Kind
    tried: str
    text: str
    advice: tuple[str, ...]
    since: datetime

    @property
    def title(self) -> str:
        """The trouble in one line."""
        return TITLES[self.kind]


def explain(error: Exception, source: Source, path: str, since: datetime) -> Trouble:
    """What an error means to who looks at the dashboard."""
    kind = _kind_of(error)
    tried = f"GET {source.address.rstrip('/')}{path}"
    told = str(error) if isinstance(error, PenstockError) else f"no Penstock server says this: {error}"
    text = " ".join(told.split())
    return Trouble(kind, tried, text, _advice(kind, source), since)


def _kind_of(error: Exception) -> Kind:
    code = error.code if isinstance(error, PenstockError) else ""
    if code == BadCredentials.code:
        return Kind.BAD_CREDENTIALS
    if code == NotAuthorized.code:
        return Kind.NOT_AUTHORIZED
    return Kind.UNREACHABLE if isinstance(error, ConnectionRefused | ConnectionLost) else Kind.STRANGE


def _advice(kind: Kind, source: Source) -> tuple[str, ...]:
    who = f"user `{source.user}`" if source.user else "a client without a name"
    if kind is Kind.UNREACHABLE:
        return (
            "Is the server running? `penstock serve` starts one.",
            "Is this its HTTP port? `penstock dashboard --address http://host:8080` takes another.",
            "`penstock health` asks from a terminal.",
        )
    if kind is Kind.BAD_CREDENTIALS:
        return (
            f"The dashboard asks as {who}.",
            "Start it with `--user NAME --password-file FILE`; `penstock passwd` sets a password.",
        )
    if kind is Kind.NOT_AUTHORIZED:
        return (
            f"The dashboard asks as {who}. It needs the right to subscribe to `$SYS/#`.",
            "Add `subscribe $SYS/#` for this user to the access list and reload it (SIGHUP).",
        )
    return (
        "Is this the HTTP port of a Penstock server? `penstock serve` prints its addresses.",
        "A server with `http.admin_port` answers there: give that port to `--address`.",
    )
