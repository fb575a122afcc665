"""Filters of one `penstock.v1` subscription: requested, in replay or live, and the cursor of each group.

State machine without I/O. Filters with the same start form one request; one request is in progress at a time,
so that replayed messages belong to it. After its replay its filters are a live group with a cursor. After a
lost connection `reset` turns each group into a request to resume after its cursor, and the request in
progress into one that resumes its replay. Shared filters have no history of their own, so
they start with new messages.
"""

from collections import deque
from collections.abc import Callable, Iterable

from msgspec import Struct

from penstock.client.errors import is_worth_retrying
from penstock.client.grpc.dialect import Start
from penstock.common.cursor import Cursor
from penstock.common.topics import matches, split_share
from penstock.errors import InvalidCursor, PenstockError

OnResult = Callable[[PenstockError | None], None]


def _ignore(_: PenstockError | None) -> None:
    pass


class FilterRequest(Struct, eq=False):
    """Filters to be added."""

    filters: tuple[str, ...]
    start: Start
    on_result: OnResult = _ignore  # called once: with None, or with the error
    was_accepted: bool = False  # by an earlier connection: a refusal now has to be reported as a loss
    is_resumed: bool = False  # messages that other filters have delivered are duplicates
    request_id: int = 0

    @property
    def has_replay(self) -> bool:
        """Return whether it begins with a replay."""
        return self.start.after is not None or self.start.last is not None

    def resolve(self, error: PenstockError | None = None) -> None:
        """Report the result to its requester, once."""
        on_result, self.on_result = self.on_result, _ignore
        on_result(error)


class LiveFilters(Struct, eq=False):
    """Live filters, and the cursor after all of their messages."""

    filters: tuple[str, ...]
    cursor: str | None
    awaits_retained: bool = False  # retained values may still be in flight


class FilterState:
    """The filters of one subscription, across connections."""

    def __init__(self) -> None:
        self._groups: list[LiveFilters] = []
        self._queue: deque[FilterRequest] = deque()
        self._current: FilterRequest | None = None

    @property
    def filters(self) -> tuple[str, ...]:
        """All filters, live or not."""
        return tuple(dict.fromkeys(filter for part in self._parts() for filter in part.filters))

    @property
    def cursor(self) -> str | None:
        """Cursor of the oldest filters."""
        if self._groups:
            return self._groups[0].cursor
        first = self._current or (self._queue[0] if self._queue else None)
        return first.start.after if first else None

    # Calls of the application

    def add(self, filters: Iterable[str], start: Start, on_result: OnResult = _ignore) -> None:
        """Queue a request for more filters."""
        self._queue.append(FilterRequest(tuple(dict.fromkeys(filters)), start, on_result))

    def remove(self, filters: Iterable[str]) -> None:
        """Remove filters; requests that have none left are resolved."""
        removed = set(filters)
        for part in self._parts():
            part.filters = tuple(filter for filter in part.filters if filter not in removed)
            if isinstance(part, FilterRequest) and not part.filters:
                part.resolve()
        self._groups = [group for group in self._groups if group.filters]
        self._queue = deque(request for request in self._queue if request.filters)

    # Requests to the server

    def reset(self) -> None:
        """Queue everything again, for a new connection."""
        requests = [request for group in self._groups for request in _resume(group)]
        requests += [
            FilterRequest(group.filters, Start(retained=True))
            for group in self._groups
            if group.awaits_retained
        ]
        if self._current is not None and self._current.filters:
            requests.append(self._current)
        self._queue.extendleft(reversed(requests))
        self._groups, self._current = [], None

    def next_request(self, request_id: int) -> FilterRequest | None:
        """The request to send now under an id; None if there is none, or one is in progress."""
        if self._current is not None or not self._queue:
            return None
        self._current = self._queue.popleft()
        self._current.request_id = request_id
        return self._current

    # Events of the server

    def on_added(self, request_id: int, cursor: str, replay_started: bool) -> None:
        """The server has accepted a request."""
        request = self._find(request_id)
        if request is None:
            return
        request.resolve()
        request.was_accepted = True
        if request.has_replay:
            self._remove_from_groups(request.filters)
            if replay_started:
                return
        self._go_live(request, cursor)

    def on_statement(self, request_id: int, cursor: str) -> tuple[str, ...]:
        """A replay has ended; returns its filters."""
        request = self._find(request_id)
        if request is None:
            return ()
        self._go_live(request, cursor)
        return request.filters

    def on_refused(self, request_id: int, error: PenstockError) -> FilterRequest | None:
        """The server has refused a request; returns it if its filters had been live before."""
        request = self._find(request_id)
        if request is None:
            return None
        self._current = None
        request.resolve(error)
        if not request.was_accepted:
            return None
        if is_worth_retrying(error):
            self._queue.appendleft(request)
        elif isinstance(error, InvalidCursor):  # another log, or a truncated one: continue with new messages
            self._queue.appendleft(FilterRequest(request.filters, Start(), was_accepted=True))
        return request

    def on_delivery(self, cursor: str, *, is_replay: bool, is_retained: bool) -> str | None:
        """Messages have arrived; returns the cursor after them, as seen by the oldest filters."""
        if is_replay and self._current is not None:
            self._current.start = Start(after=cursor)
        elif not is_retained and not is_replay:
            self._advance(cursor)
        return self.cursor

    def is_duplicate(self, topic: str) -> bool:
        """Return whether a replayed message was already delivered by a filter that resumed earlier."""
        if self._current is None or not self._current.is_resumed:
            return False
        return any(matches(filter, topic) for group in self._groups for filter in group.filters)

    def on_heartbeat(self, cursor: str) -> str | None:
        """Everything up to a cursor has arrived."""
        if cursor and self._current is None:
            self._advance(cursor)
        return self.cursor

    def _parts(self) -> list[LiveFilters | FilterRequest]:
        current = [self._current] if self._current is not None else []
        return [*self._groups, *current, *self._queue]

    def _find(self, request_id: int) -> FilterRequest | None:
        return self._current if self._current and self._current.request_id == request_id else None

    def _go_live(self, request: FilterRequest, cursor: str) -> None:
        """Make filters live from a cursor; filters that are live already keep theirs."""
        self._current = None
        already = {filter for group in self._groups for filter in group.filters}
        fresh = tuple(filter for filter in request.filters if filter not in already)
        if fresh:
            self._groups.append(LiveFilters(fresh, cursor))
        if request.start.retained and not request.has_replay:
            for group in self._groups:
                group.awaits_retained |= not set(group.filters).isdisjoint(request.filters)

    def _advance(self, cursor: str) -> None:
        groups = self._groups
        for group in groups:
            group.awaits_retained = False
            if len(groups) == 1 or group.cursor is None or _is_later(cursor, group.cursor):
                group.cursor = cursor
        if len(groups) > 1 and all(group.cursor == groups[0].cursor for group in groups):
            merged = tuple(filter for group in groups for filter in group.filters)
            self._groups = [LiveFilters(merged, cursor)]

    def _remove_from_groups(self, filters: tuple[str, ...]) -> None:
        for group in self._groups:
            group.filters = tuple(filter for filter in group.filters if filter not in filters)
        self._groups = [group for group in self._groups if group.filters]


def _resume(group: LiveFilters) -> list[FilterRequest]:
    shared = tuple(filter for filter in group.filters if _is_shared(filter))
    own = tuple(filter for filter in group.filters if not _is_shared(filter))
    requests = [
        FilterRequest(own, Start(after=group.cursor), was_accepted=True, is_resumed=True),
        FilterRequest(shared, Start(), was_accepted=True),
    ]
    return [request for request in requests if request.filters]


def _is_shared(filter: str) -> bool:
    group, _ = split_share(filter)
    return group is not None


def _is_later(cursor: str, other: str) -> bool:
    """Return whether a cursor is later than another one, in every log that both contain."""
    earlier = Cursor.decode(other)
    pairs = [(position, earlier.position_in(position.log_id)) for position in Cursor.decode(cursor).positions]
    return all(old is None or position.offset > old.offset for position, old in pairs)
