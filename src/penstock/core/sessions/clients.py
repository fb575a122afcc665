"""Client directory: sessions and publishing calls by the id that a client gives itself.

A session of MQTT has the id of its client. Streams of gRPC and of events have ids of their own, because one
client may open several; the directory finds all of them by the client's id, which the identity that their
rights are decided for has. Streams that have ended stay known for a while, for records of what they lost.
"""

from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import Protocol

from penstock.core.access.identity import Identity
from penstock.core.sessions.session import Session
from penstock.model import Door

PAST_STREAMS = 10_000
"""Most ended streams whose client is remembered."""


class PublishingCall(Protocol):
    """Call that publishes and has no session: present as long as it is open."""

    @property
    def identity(self) -> Identity: ...

    @property
    def door(self) -> Door: ...

    @property
    def connected_at(self) -> int:
        """When it began, in wall time."""
        ...

    def close(self, reason: str) -> None:
        """End it for a reason of core."""
        ...


class ClientDirectory:
    """Clients by their own ids."""

    def __init__(self, sessions: Mapping[str, Session]) -> None:
        self._sessions = sessions
        self._streams: dict[str, dict[Session, None]] = {}  # sessions whose id is not that of the client
        self._callers: dict[str, dict[PublishingCall, None]] = {}
        self._past: OrderedDict[str, str] = OrderedDict()  # clients of ended streams, by the stream's id

    def __len__(self) -> int:
        """Number of sessions, and of clients that only publish."""
        return len(self._sessions) + len(self._callers)

    # Presence

    def enter(self, session: Session) -> None:
        """A session has a connection."""
        name = session.identity.client_id
        if name and name != session.client_id:
            self._streams.setdefault(name, {})[session] = None

    def leave(self, session: Session) -> None:
        """A session has ended."""
        name = session.identity.client_id
        if name and name != session.client_id and _discard(self._streams, name, session):
            self._past[session.client_id] = name
            if len(self._past) > PAST_STREAMS:
                self._past.popitem(last=False)

    def enter_call(self, call: PublishingCall) -> None:
        """A call publishes, without a session. Calls of clients without an id are not listed."""
        if call.identity.client_id:
            self._callers.setdefault(call.identity.client_id, {})[call] = None

    def leave_call(self, call: PublishingCall) -> None:
        """A call has ended. Idempotent."""
        _discard(self._callers, call.identity.client_id, call)

    # Look-up

    def ids(self) -> list[str]:
        """Return the ids of all clients, each once."""
        streams = [session.client_id for known in self._streams.values() for session in known]
        return list((self._sessions.keys() - streams) | self._streams.keys() | self._callers.keys())

    def find(self, client_id: str) -> list[Session]:
        """Return the sessions of a client: that of this id, and its streams, the oldest first."""
        session = self._sessions.get(client_id)
        streams = self._streams.get(client_id, ())
        return [*([] if session is None else [session]), *streams]

    def calls_of(self, client_id: str) -> Collection[PublishingCall]:
        """Return the calls that a client publishes by."""
        return list(self._callers.get(client_id, ()))

    def client_of(self, session_id: str) -> str:
        """Return the client of a session, also of a stream that has ended."""
        session = self._sessions.get(session_id)
        return self._past.get(session_id, session_id) if session is None else session.name


def _discard(
    known: "dict[str, dict[Session, None]] | dict[str, dict[PublishingCall, None]]", name: str, entry: object
) -> bool:
    """Remove an entry of a client; False if there was none."""
    entries = known.get(name)
    if entries is None or entry not in entries:
        return False
    del entries[entry]  # type: ignore[arg-type]
    if not entries:
        del known[name]
    return True
