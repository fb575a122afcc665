"""Shared subscriptions: of a group's members, one gets each message.

Only connected members that can take a message now are chosen; while there is none, the group itself is owed
the messages, and whoever catches up first gets them. What a leaving member had not acknowledged at QoS 1 is
offered again, first and in order. However many members are away, a choice looks at none of them.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.owed import Owed
from penstock.core.policy import Limits
from penstock.core.ports import Form, Frame
from penstock.model import Run

if TYPE_CHECKING:
    from penstock.core.records import GroupRecord
    from penstock.core.sessions import Session, Subscription


class SharedGroup:
    """The members of one `$share/name/filter`."""

    __slots__ = (
        "_placed",
        "_wanting",
        "again",
        "filter",
        "inner",
        "is_kept",
        "members",
        "owed",
        "present",
        "stored",
    )

    def __init__(self, filter: str, inner: str, limits: Limits) -> None:
        self.filter = filter
        self.inner = inner  # without the group's name: what topics are matched with
        self.members: dict[Session, Subscription] = {}
        self.present: OrderedDict[Session, None] = OrderedDict()  # connected; whose turn is next comes first
        self._wanting: OrderedDict[Session, None] = OrderedDict()  # those at QoS 1 or 2
        self._placed: set[Session] = set()  # those who learn the cursor of each message
        self.owed = Owed(limits)
        self.again: dict[int, None] = {}  # offsets of what is offered again, before the rest of `owed`
        self.is_kept = False  # a member has come back for messages, or will
        self.stored: GroupRecord | None = None  # what the state store says of it

    def __bool__(self) -> bool:
        return bool(self.members)

    def join(self, session: "Session", subscription: "Subscription") -> None:
        """Add a member, or replace its subscription."""
        self.members[session] = replace(subscription, form=SharedForm(subscription.form, self))
        if subscription.form.qos:
            self._wanting[session] = None
            self.is_kept = self.is_kept or session.is_persistent
        else:
            self._wanting.pop(session, None)
        if subscription.form.has_cursor:
            self._placed.add(session)
        else:
            self._placed.discard(session)
        if session.groups is None:
            session.groups = {}
        session.groups[self] = None
        if session.sink is not None:
            self.arrive(session)

    def leave(self, session: "Session", subscription: "Subscription") -> None:
        """Remove a member."""
        del self.members[session]
        self._wanting.pop(session, None)
        self._placed.discard(session)
        if session.groups is not None:
            session.groups.pop(self, None)
        self.depart(session)

    def arrive(self, session: "Session") -> None:
        """A member is connected; if it was not before, its turn comes after everyone else's."""
        self.present[session] = None

    def depart(self, session: "Session") -> None:
        """A member is connected no more."""
        self.present.pop(session, None)

    def choose(self) -> "Session | None":
        """Whose turn it is of those that can take one more; None while nobody can."""
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
        """These are owed no more, and so not offered again."""
        for run in runs:
            self.again.pop(run.offset, None)

    @property
    def wants_owed(self) -> bool:
        """Someone who is away will come back for messages at QoS 1 or 2."""
        return bool(self._wanting)

    @property
    def has_cursors(self) -> bool:
        """Someone may come back with the cursor of the last message."""
        return bool(self._placed)

    @property
    def speaker(self) -> "Subscription":
        """The subscription that decides how messages are kept for the group."""
        return self.members[next(iter(self._wanting or self.present))]


class SharedForm(Struct, frozen=True, eq=False):
    """A member's form that also says which group a message came through."""

    form: Form
    group: SharedGroup

    no_local = False
    is_retained = False

    @property
    def qos(self) -> int:
        return self.form.qos

    @property
    def has_cursor(self) -> bool:
        return self.form.has_cursor

    @property
    def limit_bytes(self) -> int:
        return self.form.limit_bytes

    def encode(self, runs: Sequence[Run], now: float) -> bytes:
        return self.form.encode(runs, now)

    def frames(self, runs: Sequence[Run], now: float, *, again: bool = False) -> list[Frame]:
        return self.form.frames(runs, now, again=again)

    def oversize(self, runs: Sequence[Run], now: float) -> list[Run]:
        return self.form.oversize(runs, now)

    def merge(self, other: Form) -> Form:
        return self.form.merge(other)

    def as_retained(self) -> Form:
        return self.form.as_retained()


def reform_any(form: Form, reform: Callable[[Form], Form]) -> Form:
    """Remake a form, keeping the group it came through."""
    return SharedForm(reform(form.form), form.group) if isinstance(form, SharedForm) else reform(form)
