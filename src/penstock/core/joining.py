"""The past of filters first, then what is live, in one order: nothing twice, nothing left out.

A join reads from its start to the head, chunk by chunk, and sends each chunk when its session keeps up. In
the turn in which a chunk ends at the head its filters are subscribed to, so that the seam is one offset. Then
one statement says what was served and what is missing, right behind the last message of the past and before
the first live one. Other filters of the session go on meanwhile: what they match as well comes by them too,
and earlier than by the join.
"""

from asyncio import Task, get_running_loop
from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.account import Account
from penstock.core.joins import Joins
from penstock.core.lagging import CHUNK_BYTES, split
from penstock.core.node import Node
from penstock.core.outbox import Entry
from penstock.core.ports import Form
from penstock.core.replay import Replay, sift
from penstock.core.sessions import Options, Session
from penstock.core.starts import After, AfterSequences, Beginning, Foresight, Last, Start, begin, search
from penstock.core.statement import Chunk, Statement
from penstock.core.subscribing import Subscribing
from penstock.core.topics import matches, split_share
from penstock.errors import InvalidRequest, PenstockError, StorageUnavailable
from penstock.model import Policy, Run

__all__ = ["After", "AfterSequences", "Foresight", "Join", "Joining", "Last", "Start", "Wish"]

OnBegin: TypeAlias = Callable[[Foresight | None], None]
OnComplete: TypeAlias = Callable[[Statement], None]
OnFailed: TypeAlias = Callable[[PenstockError], None]


def _nothing(foresight: Foresight | None) -> None:
    pass


class Wish(Struct, frozen=True):
    """What is to be subscribed to, and from where on."""

    filters: tuple[str, ...]
    options: Options
    form: Form
    past_form: Form
    """That of messages that were published before the filters are live."""
    policy: Policy
    start: Start


class Joining:
    """Lets sessions catch up with filters."""

    def __init__(self, node: Node, subscribing: Subscribing) -> None:
        self._node = node
        self._subscribing = subscribing

    def join(
        self,
        session: Session,
        filters: str | Sequence[str],
        options: Options,
        form: Form,
        *,
        policy: Policy,
        start: Start | None,
        on_complete: OnComplete,
        on_failed: OnFailed,
        on_begin: OnBegin = _nothing,
        past_form: Form | None = None,
    ) -> "Join | None":
        """Add filters to a session, or replace those it has, with their past from a start on.

        Several filters are read together, in one order, each message once. Without a start they are live at
        once, and there is no statement. Where nothing has to be read from disk, the session keeps up and few
        others catch up at the same time, all is done before this returns. Retained values are part of the
        past, and are not sent by themselves.

        Args:
            on_begin: called when nothing is wrong with the wish, before the first message; after sequences
                also with what will be missing, which may take a while to find out.
            on_complete: called when the filters are live, before the first live message.
            on_failed: called if it comes to nothing later; the session then has none of the filters.
            past_form: how messages of the past are sent, if not as live ones.

        Raises:
            PenstockError: a filter is invalid, forbidden or one too many, or the start is none.
        """
        wanted = (filters,) if isinstance(filters, str) else tuple(dict.fromkeys(filters))
        if not wanted:
            raise InvalidRequest("name at least one filter")
        self._subscribing.check(session, wanted)
        if start is None:
            self._node.tick.settle()  # what is live by another filter comes first
            on_begin(None)  # a shared group may be owed something, which leaves when it is joined
            for filter in wanted:
                self._subscribing.subscribe(session, filter, options, form, policy=policy, retained=False)
            return None
        if any(split_share(filter)[0] is not None for filter in wanted):
            raise InvalidRequest("a shared filter has no past: each of its messages went to one of its group")
        beginning = begin(self._node.history, wanted, start)
        for filter in wanted:
            self._subscribing.unsubscribe(session, filter)
        wish = Wish(wanted, options, form, past_form or form, policy, start)
        join = Join(self._node, self._subscribing, session, wish, on_begin, on_complete, on_failed)
        session.joins = session.joins or Joins(self._node.scheduler)
        session.joins.add(join)
        self._node.joining.add(session)
        join.begin(beginning)
        return join


class Join:
    """Filters of one session on their way to the head."""

    def __init__(
        self,
        node: Node,
        subscribing: Subscribing,
        session: Session,
        wish: Wish,
        on_begin: OnBegin,
        on_complete: OnComplete,
        on_failed: OnFailed,
    ) -> None:
        self._node = node
        self._subscribing = subscribing
        self._session = session
        self._wish = wish
        self._on_begin = on_begin
        self._on_complete = on_complete
        self._on_failed = on_failed
        self._replay: Replay | None = None  # while it is not known where the start is
        self._account: Account | None = None
        self._chunk: Chunk | None = None  # read, and not sent yet
        self._reading: Task[None] | None = None
        self._asked = node.history.head  # what comes after this is live, or would be
        self._is_busy = False
        self.filters = wish.filters  # those to be subscribed to at the head
        self.position = self._position_of(wish.start)
        """Everything up to this offset was sent, or is accounted for."""
        self.is_over = False

    def _position_of(self, start: Start) -> int:
        """How far the session had got before it is known where the replay begins."""
        cursor = start.otherwise if isinstance(start, AfterSequences) else None
        place = None if cursor is None else cursor.position_in(self._node.log.log_id)
        return self._asked if place is None else min(place.offset, self._asked)

    def begin(self, beginning: Beginning | None) -> None:
        """Set out, or find out first where that is."""
        if beginning is not None:
            self._set_out(beginning)
            self._on_begin(beginning.foresight)
        elif not isinstance(self._wish.start, AfterSequences):
            self._on_begin(None)
        self.go_on()

    def leave(self, filter: str) -> None:
        """The session wants a filter no more, or in another way."""
        self.filters = tuple(each for each in self.filters if each != filter)
        if not self.filters:
            self.stop()

    def stop(self) -> None:
        """The session has gone, or wants none of the filters; once they are live this does nothing."""
        if self.is_over:
            return
        self.is_over = True
        self._chunk = None
        if self._reading is not None:
            self._reading.cancel()
        self._node.turns.leave(self)
        joins = self._session.joins
        if joins is not None:
            joins.remove(self)
            if not joins:
                self._session.joins = None
                self._node.joining.discard(self._session)

    def fail(self, error: PenstockError) -> None:
        """End before the head, and say why."""
        self.stop()
        self._on_failed(error)

    # On the way

    def go_on(self) -> None:
        """Ask for a turn to send a chunk, unless one is being read or sent, or the session takes none."""
        if not self._is_busy and self._reading is None and self._session.keeps_up and not self._is_short:
            self._node.turns.ask(self)

    @property
    def _is_short(self) -> bool:
        """The session has to give credit before more of a chunk can leave."""
        return self._session.credit == 0 and self._chunk is not None and bool(self._chunk.runs)

    def work(self) -> None:
        """Send one chunk; others have their turn before the next."""
        if self.is_over or self._reading is not None:
            return
        self._is_busy = True
        try:
            is_sent = self._has_chunk() and self._send_chunk()
        finally:
            self._is_busy = False
        if is_sent:
            self.go_on()

    def _has_chunk(self) -> bool:
        """Whether there is a chunk and somebody to take it; if it has to be read, that is begun."""
        if self.is_over or not self._session.keeps_up:
            return False  # when the session flows again it tells us
        if self._chunk is None and self._replay is not None:
            self._chunk = self._replay.read_now(CHUNK_BYTES)
        if self._chunk is None:
            self._begin_reading()
            return False
        # What is live by another filter comes first; and nothing may be published between here and the seam.
        self._node.tick.settle()
        return not self.is_over and self._session.keeps_up

    def _send_chunk(self) -> bool:
        """Send what was read, and end if that was all; answer whether there is more to do."""
        chunk, self._chunk = self._chunk, None
        assert chunk is not None and self._replay is not None and self._account is not None
        session, now = self._session, self._node.clock.monotonic()
        alive, expired = sift(chunk.runs, now)  # it may have waited a while
        form, wanted = self._wish.past_form, [run for run in alive if self._is_wanted(run)]
        if session.credit is not None:
            wanted = self._keep_rest(chunk, wanted, session.credit)
        entries: list[Entry] = [(run, form) for run in wanted]
        served = sum(run.count for run in wanted)
        said = replace(chunk.statement, served=served, missing=(*chunk.statement.missing, *expired))
        self.position = self._replay.after if self._chunk is None else self._chunk.runs[0].offset - 1
        self._account.add(said, self.position)
        if isinstance(self._wish.start, AfterSequences):
            self._account.count(wanted)
        _, is_blocked = self._node.lagging.send(session, entries, now) if entries else (0, False)
        if is_blocked:
            session.is_flowing = False  # the rest waits in its outbox
        is_sent = not (is_blocked or session.gate or self.is_over or self._chunk)
        if is_sent and self._replay.after == self._node.history.head:
            self._arrive(self._account)
        return not self.is_over

    def _keep_rest(self, chunk: Chunk, wanted: list[Run], credit: int) -> list[Run]:
        """What there is credit for. Others wait here and not in the outbox, where they could be dropped."""
        leaving, rest = split(wanted, credit)
        if rest:
            self._chunk = Chunk(tuple(rest), replace(chunk.statement, missing=(), gaps=()))
        return leaving

    def _is_wanted(self, run: Run) -> bool:
        """Whether a message is sent: some do not want their own, or have left a filter meanwhile."""
        session, wish = self._session, self._wish
        if wish.form.no_local and run.client_id == session.client_id and run.shape.door is session.door:
            return False
        is_whole = len(self.filters) == len(wish.filters)
        return is_whole or any(matches(filter, run.topic) for filter in self.filters)

    def _arrive(self, account: Account) -> None:
        """Everything up to the head is sent: from here on the filters are live."""
        filters = self.filters
        self.stop()
        wish, head = self._wish, self._node.history.cursor()
        try:
            for filter in filters:
                self._subscribing.subscribe(
                    self._session, filter, wish.options, wish.form, policy=wish.policy, retained=False
                )
        except PenstockError as error:
            for filter in filters:
                self._subscribing.unsubscribe(self._session, filter)
            self._on_failed(error)
        else:
            self._on_complete(account.statement(head))

    # Reading

    def _set_out(self, beginning: Beginning) -> None:
        self._replay = beginning.replay
        self.position = after = beginning.replay.after
        self._account = Account(self._node.history.cursor(after), after)

    def _begin_reading(self) -> None:
        joins = self._session.joins
        assert joins is not None
        if joins.may_read(self):
            self._reading = get_running_loop().create_task(self._read())

    async def _search(self) -> None:
        """Find out where to begin; who goes on after sequences is told now what will be missing."""
        wish = self._wish
        beginning = await search(self._node.history, wish.filters, wish.start, self._asked)
        self._set_out(beginning)
        if beginning.foresight is not None:
            self._on_begin(beginning.foresight)

    async def _read(self) -> None:
        """Read what comes next; if it ends at the head, it is sent in the same turn."""
        try:
            if self._replay is None:
                await self._search()
            elif self._chunk is None:
                self._chunk = await self._replay.read(CHUNK_BYTES)
        except PenstockError as error:
            self._reading = None
            self.fail(error)
        except Exception as error:  # of the disk: what it is tells the operator, and the reader may try again
            self._reading = None
            self.fail(StorageUnavailable(f"the log cannot be read now: {error}"))
        else:
            self._reading = None
            self._node.turns.take_step(self)  # at once: nothing may be published meanwhile
