"""Where one subscription stands: which filters are live, from where each goes on, what is still to be asked.

Nothing here is sent or awaited. A wish is a set of filters with a start. One is asked for at a time, so that
what is replayed belongs to it. When its past has come its filters are live, as a group that remembers where
it is. If the connection goes, `begin` turns every group into the wish to go on behind what came; a wish that
was under way goes on behind what came of its past. A shared filter has no past of its own: it begins anew.
"""

from collections import deque
from collections.abc import Callable, Iterable

from msgspec import Struct

from penstock.client.dialect import Start
from penstock.client.reconnection import is_worth_a_try
from penstock.core.cursor import Cursor
from penstock.core.topics import matches, split_share
from penstock.errors import InvalidCursor, PenstockError

OnAgreed = Callable[[PenstockError | None], None]


def _nobody(_: PenstockError | None) -> None:
    pass


class Wish(Struct, eq=False):
    """Filters to be listened to."""

    filters: tuple[str, ...]
    start: Start
    on_agreed: OnAgreed = _nobody  # told once: None, or why not
    is_agreed: bool = False  # the server had agreed before: if it comes to nothing, that has to be told
    is_resumed: bool = False  # it only goes on: what other filters have brought is not wanted again
    request_id: int = 0

    @property
    def has_past(self) -> bool:
        """Whether messages of the past come first."""
        return self.start.after is not None or self.start.last is not None

    def settle(self, error: PenstockError | None = None) -> None:
        """Tell who asked for it, once."""
        on_agreed, self.on_agreed = self.on_agreed, _nobody
        on_agreed(error)


class Group(Struct, eq=False):
    """Filters that are live, and the cursor behind all that has come of them."""

    filters: tuple[str, ...]
    cursor: str | None
    owes_retained: bool = False  # retained values may still be on their way


class Course:
    """The filters of one subscription, over as many connections as it takes."""

    def __init__(self) -> None:
        self._groups: list[Group] = []
        self._wishes: deque[Wish] = deque()
        self._asked: Wish | None = None

    # What it comes to

    @property
    def filters(self) -> tuple[str, ...]:
        """All that is listened to, or will be."""
        return tuple(dict.fromkeys(filter for part in self._parts() for filter in part.filters))

    @property
    def cursor(self) -> str | None:
        """Where the oldest filters go on."""
        if self._groups:
            return self._groups[0].cursor
        first = self._asked or (self._wishes[0] if self._wishes else None)
        return first.start.after if first else None

    # What the application wants

    def add(self, filters: Iterable[str], start: Start, on_agreed: OnAgreed = _nobody) -> None:
        """Listen to more."""
        self._wishes.append(Wish(tuple(dict.fromkeys(filters)), start, on_agreed))

    def remove(self, filters: Iterable[str]) -> None:
        """Listen to less; who still waits for such filters has nothing to wait for."""
        unwanted = set(filters)
        for part in self._parts():
            part.filters = tuple(filter for filter in part.filters if filter not in unwanted)
            if isinstance(part, Wish) and not part.filters:
                part.settle()
        self._groups = [group for group in self._groups if group.filters]
        self._wishes = deque(wish for wish in self._wishes if wish.filters)

    # What is to be asked

    def begin(self) -> None:
        """A connection is new: everything has to be asked for, again."""
        wishes = [wish for group in self._groups for wish in _resume(group)]
        wishes += [Wish(group.filters, Start(retained=True)) for group in self._groups if group.owes_retained]
        if self._asked is not None and self._asked.filters:
            wishes.append(self._asked)
        self._wishes.extendleft(reversed(wishes))
        self._groups, self._asked = [], None

    def next_wish(self, request_id: int) -> Wish | None:
        """The wish to ask for now, under an id, if any."""
        if self._asked is not None or not self._wishes:
            return None
        self._asked = self._wishes.popleft()
        self._asked.request_id = request_id
        return self._asked

    # What the server says

    def on_added(self, request_id: int, cursor: str, replay_started: bool) -> None:
        """The server has agreed."""
        wish = self._asked_for(request_id)
        if wish is None:
            return
        wish.settle()
        wish.is_agreed = True
        if wish.has_past:
            self._leave_groups(wish.filters)
            if replay_started:
                return
        self._arrive(wish, cursor)

    def on_statement(self, request_id: int, cursor: str) -> tuple[str, ...]:
        """The past is over; answers whose."""
        wish = self._asked_for(request_id)
        if wish is None:
            return ()
        self._arrive(wish, cursor)
        return wish.filters

    def on_refused(self, request_id: int, error: PenstockError) -> Wish | None:
        """The server has said no. What is answered was live before, and is not any more."""
        wish = self._asked_for(request_id)
        if wish is None:
            return None
        self._asked = None
        wish.settle(error)
        if not wish.is_agreed:
            return None
        if is_worth_a_try(error):
            self._wishes.appendleft(wish)
        elif isinstance(error, InvalidCursor):  # another log, or one that forgot: go on with what is new
            self._wishes.appendleft(Wish(wish.filters, Start(), is_agreed=True))
        return wish

    def on_delivery(self, cursor: str, *, is_replay: bool, is_retained: bool) -> str | None:
        """Messages have come; answers the cursor behind them, as the oldest filters see it."""
        if is_replay and self._asked is not None:
            self._asked.start = Start(after=cursor)
        elif not is_retained and not is_replay:
            self._advance(cursor)
        return self.cursor

    def is_repeated(self, topic: str) -> bool:
        """Whether a message of the past that comes now has come already, by a filter that went on before."""
        if self._asked is None or not self._asked.is_resumed:
            return False
        return any(matches(filter, topic) for group in self._groups for filter in group.filters)

    def on_heartbeat(self, cursor: str) -> str | None:
        """All up to a cursor has come."""
        if cursor and self._asked is None:
            self._advance(cursor)
        return self.cursor

    # Inside

    def _parts(self) -> list[Group | Wish]:
        asked = [self._asked] if self._asked is not None else []
        return [*self._groups, *asked, *self._wishes]

    def _asked_for(self, request_id: int) -> Wish | None:
        return self._asked if self._asked and self._asked.request_id == request_id else None

    def _arrive(self, wish: Wish, cursor: str) -> None:
        """Filters are live from a cursor on; those that were already stay where they are."""
        self._asked = None
        already = {filter for group in self._groups for filter in group.filters}
        fresh = tuple(filter for filter in wish.filters if filter not in already)
        if fresh:
            self._groups.append(Group(fresh, cursor))
        if wish.start.retained and not wish.has_past:
            for group in self._groups:
                group.owes_retained |= not set(group.filters).isdisjoint(wish.filters)

    def _advance(self, cursor: str) -> None:
        groups = self._groups
        for group in groups:
            group.owes_retained = False
            if len(groups) == 1 or group.cursor is None or _is_later(cursor, group.cursor):
                group.cursor = cursor
        if len(groups) > 1 and all(group.cursor == groups[0].cursor for group in groups):
            merged = tuple(filter for group in groups for filter in group.filters)
            self._groups = [Group(merged, cursor)]

    def _leave_groups(self, filters: tuple[str, ...]) -> None:
        for group in self._groups:
            group.filters = tuple(filter for filter in group.filters if filter not in filters)
        self._groups = [group for group in self._groups if group.filters]


def _resume(group: Group) -> list[Wish]:
    shared = tuple(filter for filter in group.filters if _is_shared(filter))
    own = tuple(filter for filter in group.filters if not _is_shared(filter))
    wishes = [
        Wish(own, Start(after=group.cursor), is_agreed=True, is_resumed=True),
        Wish(shared, Start(), is_agreed=True),
    ]
    return [wish for wish in wishes if wish.filters]


def _is_shared(filter: str) -> bool:
    group, _ = split_share(filter)
    return group is not None


def _is_later(cursor: str, other: str) -> bool:
    """Whether a cursor is behind another one, in every log that both know."""
    there = Cursor.decode(other)
    pairs = [(here, there.position_in(here.log_id)) for here in Cursor.decode(cursor).positions]
    return all(old is None or here.offset > old.offset for here, old in pairs)
