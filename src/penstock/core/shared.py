"""Shared subscriptions: of a group's members, one gets each message.

Only connected members are chosen, those that keep up before those that lag. While nobody is connected
the group itself is owed the messages; what a leaving member had not acknowledged at QoS 1 is offered
again, first and in order.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.owed import Owed
from penstock.core.policy import Limits
from penstock.core.ports import Form, Frame
from penstock.model import Run

if TYPE_CHECKING:
    from penstock.core.sessions import Session, Subscription


class SharedGroup:
    """The members of one `$share/name/filter`."""

    __slots__ = ("filter", "members", "name", "owed")

    def __init__(self, name: str, filter: str, limits: Limits) -> None:
        self.name = name
        self.filter = filter
        self.members: OrderedDict[Session, Subscription] = OrderedDict()  # whose turn is next comes first
        self.owed = Owed(limits)

    def __bool__(self) -> bool:
        return bool(self.members)

    def join(self, session: "Session", subscription: "Subscription") -> None:
        """Add a member, or replace its subscription."""
        self.members[session] = replace(subscription, form=SharedForm(subscription.form, self))

    def leave(self, session: "Session", subscription: "Subscription") -> None:
        """Remove a member."""
        del self.members[session]

    def choose(self) -> "Session | None":
        """Whose turn it is; None while nobody is connected."""
        members, lagging = self.members, None
        for _ in range(len(members)):
            session = next(iter(members))
            members.move_to_end(session)
            if session.is_flowing:
                return session
            if session.sink is not None and lagging is None:
                lagging = session
        if lagging is not None:
            members.move_to_end(lagging)  # laggards take turns too
        return lagging

    @property
    def is_attended(self) -> bool:
        """Someone is connected."""
        return any(session.sink is not None for session in self.members)

    @property
    def wants_owed(self) -> bool:
        """Someone who is away will come back for messages at QoS 1 or 2."""
        return any(subscription.form.qos for subscription in self.members.values())


class SharedForm(Struct, frozen=True, eq=False):
    """A member's form that also says which group a message came through."""

    form: Form
    group: SharedGroup

    no_local = False

    @property
    def qos(self) -> int:
        return self.form.qos

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
