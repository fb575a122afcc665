"""Shared subscriptions: one member of a group gets each message.

Only connected members that can take a message are chosen. While there is none, the group queues its messages
for the first member that catches up. What a leaving member had not acknowledged at QoS 1 goes to other
members, first and in order. A choice never looks at offline members.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.delivery.inflight import Inflight
from penstock.core.delivery.offline_queue import OfflineQueue
from penstock.core.delivery.policy import Limits
from penstock.core.ports.connection import Encoding, Frame
from penstock.core.subscriptions.subscription import Subscription
from penstock.runs import Run, Shape


class Member(Protocol):
    """Member of a group: a session, of which groups know no more than this."""

    groups: dict[Any, None] | None
    """Its shared groups, which add and remove themselves."""
    is_flowing: bool
    credit: int | None

    @property
    def subscriptions(self) -> dict[str, Subscription]: ...

    @property
    def connection(self) -> object | None: ...

    @property
    def inflight(self) -> Inflight | None: ...

    @property
    def keeps_up(self) -> bool: ...

    @property
    def is_persistent(self) -> bool: ...


MemberT = TypeVar("MemberT", bound=Member)


class SharedGroup(Generic[MemberT]):
    """The members of one `$share/name/filter`."""

    __slots__ = (
        "_placed",
        "_wanting",
        "again",
        "filter",
        "inner",
        "is_kept",
        "members",
        "offline_queue",
        "present",
    )

    def __init__(self, filter: str, inner: str, limits: Limits) -> None:
        self.filter = filter
        self.inner = inner  # without the group's name: what topics are matched with
        self.members: dict[MemberT, Subscription] = {}
        self.present: OrderedDict[MemberT, None] = OrderedDict()  # connected; whose turn is next comes first
        self._wanting: OrderedDict[MemberT, None] = OrderedDict()  # those at QoS 1 or 2
        self._placed: set[MemberT] = set()  # members that get the cursor of each message
        self.offline_queue = OfflineQueue(limits)
        self.again: dict[int, None] = {}  # offsets that are offered again, before the rest of the queue
        self.is_kept = False  # a member has come back for messages, or will

    def __bool__(self) -> bool:
        return bool(self.members)

    def join(self, session: MemberT, subscription: Subscription) -> None:
        """Add a member, or replace its subscription."""
        self.members[session] = replace(subscription, encoding=SharedEncoding(subscription.encoding, self))
        if subscription.encoding.qos:
            self._wanting[session] = None
            self.is_kept = self.is_kept or session.is_persistent
        else:
            self._wanting.pop(session, None)
        if subscription.encoding.has_cursor:
            self._placed.add(session)
        else:
            self._placed.discard(session)
        if session.groups is None:
            session.groups = {}
        session.groups[self] = None
        if session.connection is not None:
            self.arrive(session)

    def leave(self, session: MemberT, subscription: Subscription) -> None:
        """Remove a member."""
        del self.members[session]
        self._wanting.pop(session, None)
        self._placed.discard(session)
        if session.groups is not None:
            session.groups.pop(self, None)
        self.depart(session)

    def arrive(self, session: MemberT) -> None:
        """A member is connected; if it was not before, its turn comes after everyone else's."""
        self.present[session] = None

    def depart(self, session: MemberT) -> None:
        """A member is connected no more."""
        self.present.pop(session, None)

    def choose(self) -> MemberT | None:
        """Choose the next member that can take a message; None if there is none."""
        present = self.present
        for _ in range(len(present)):
            session = next(iter(present))
            present.move_to_end(session)
            if session.is_flowing:
                if session.inflight is None or session.inflight.room:
                    return session
            elif session.credit and session.keeps_up:
                return session
        return None

    def forget(self, runs: Iterable[Run]) -> None:
        """Forget runs that are no longer queued, so that they are not redelivered."""
        for run in runs:
            self.again.pop(run.offset, None)

    @property
    def queues_offline(self) -> bool:
        """An offline member will return for QoS 1 or 2 messages."""
        return bool(self._wanting)

    @property
    def has_cursors(self) -> bool:
        """A member may resume by the cursor of its last message."""
        return bool(self._placed)

    @property
    def speaker(self) -> Subscription:
        """The subscription that decides how messages are kept for the group."""
        return self.members[next(iter(self._wanting or self.present))]


class SharedEncoding(Struct, frozen=True, eq=False):
    """Encoding of a member that also names the group of a message."""

    encoding: Encoding
    group: SharedGroup[Any]

    no_local = False
    is_retained = False

    @property
    def qos(self) -> int:
        return self.encoding.qos

    @property
    def has_cursor(self) -> bool:
        return self.encoding.has_cursor

    @property
    def limit_bytes(self) -> int:
        return self.encoding.limit_bytes

    def passes(self, shape: Shape, longest: int) -> bool:
        """Messages of a group are encoded one by one."""
        return False

    def encode(self, runs: Sequence[Run], now: float) -> bytes:
        return self.encoding.encode(runs, now)

    def frames(self, runs: Sequence[Run], now: float, *, again: bool = False) -> list[Frame]:
        return self.encoding.frames(runs, now, again=again)

    def oversize(self, runs: Sequence[Run], now: float) -> list[Run]:
        return self.encoding.oversize(runs, now)

    def merge(self, *others: Encoding) -> Encoding:
        return self.encoding.merge(*others)

    def as_retained(self) -> Encoding:
        return self.encoding.as_retained()


def group_of(encoding: Encoding) -> SharedGroup[Any] | None:
    """Return the shared group whose messages an encoding is for; None if it is a session's own."""
    return encoding.group if isinstance(encoding, SharedEncoding) else None


def is_shared(encoding: Encoding) -> bool:
    """Return whether an encoding is for messages of a shared group."""
    return isinstance(encoding, SharedEncoding)


def own_encoding(encoding: Encoding) -> Encoding:
    """Return the encoding of the same bytes without a group."""
    return encoding.encoding if isinstance(encoding, SharedEncoding) else encoding


def reencode_any(encoding: Encoding, reencode: Callable[[Encoding], Encoding]) -> Encoding:
    """Replace an encoding, keeping its group."""
    return (
        SharedEncoding(reencode(encoding.encoding), encoding.group)
        if isinstance(encoding, SharedEncoding)
        else reencode(encoding)
    )
