"""Catch-up: a replay of the past that continues with live messages, without gap or duplicate.

A catch-up reads from its start to the head in chunks, and sends a chunk when its session keeps up. In the
turn in which a chunk reaches the head, the filters are subscribed to, so the switch is one offset. One
statement, sent between the last message of the past and the first live one, reports what was served and what
is missing. Other filters of the session stay live: what they match too arrives through them, and earlier.
"""

from asyncio import Task, get_running_loop
from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from penstock.common.statement import Statement
from penstock.common.topics import matches, split_share
from penstock.core.delivery.drain import CHUNK_BYTES, split
from penstock.core.delivery.outbox import Entry
from penstock.core.node import Node
from penstock.core.ports.connection import Encoding
from penstock.core.replay.reader import Replay, sift
from penstock.core.replay.start import (
    After,
    AfterSequences,
    Foresight,
    Last,
    PlannedReplay,
    Start,
    begin,
    search,
)
from penstock.core.replay.statement import Account, Chunk
from penstock.core.sessions.catch_up_slots import CatchUpSlots
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.subscribe import Subscriber
from penstock.core.subscriptions.subscription import Options
from penstock.errors import InvalidRequest, PenstockError, StorageUnavailable
from penstock.model import Policy
from penstock.runs import Run

__all__ = ["After", "AfterSequences", "CatchUp", "CatchUps", "Foresight", "Last", "Start", "Wish"]

OnBegin: TypeAlias = Callable[[Foresight | None], None]
OnComplete: TypeAlias = Callable[[Statement], None]
OnFailed: TypeAlias = Callable[[PenstockError], None]


def ignore_begin(foresight: Foresight | None) -> None:
    pass


class Wish(Struct, frozen=True):
    """Request of a catch-up: filters, options and start."""

    filters: tuple[str, ...]
    options: Options
    encoding: Encoding
    past_encoding: Encoding
    """That of messages that were published before the filters are live."""
    policy: Policy
    start: Start


class CatchUps:
    """Lets sessions catch up with filters."""

    def __init__(self, node: Node, subscribing: Subscriber) -> None:
        self._node = node
        self._subscribing = subscribing

    def begin(
        self,
        session: Session,
        filters: str | Sequence[str],
        options: Options,
        encoding: Encoding,
        *,
        policy: Policy,
        start: Start | None,
        on_complete: OnComplete,
        on_failed: OnFailed,
        on_begin: OnBegin = ignore_begin,
        past_encoding: Encoding | None = None,
    ) -> "CatchUp | None":
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
            on_begin(None)  # a shared group may have queued messages, sent on joining
            for filter in wanted:
                self._subscribing.subscribe(session, filter, options, encoding, policy=policy, retained=False)
            return None
        if any(split_share(filter)[0] is not None for filter in wanted):
            raise InvalidRequest("a shared filter has no past: each of its messages went to one of its group")
        beginning = begin(self._node.history, wanted, start)
        for filter in wanted:
            self._subscribing.unsubscribe(session, filter)
        wish = Wish(wanted, options, encoding, past_encoding or encoding, policy, start)
        join = CatchUp(self._node, self._subscribing, session, wish, on_begin, on_complete, on_failed)
        session.catch_ups = session.catch_ups or CatchUpSlots(self._node.scheduler)
        session.catch_ups.add(join)
        self._node.catching_up.add(session)
        join.begin(beginning)
        return join


class CatchUp:
    """Filters of one session on their way to the head."""

    def __init__(
        self,
        node: Node,
        subscribing: Subscriber,
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
        """Position of the session before the start of the replay is known."""
        cursor = start.otherwise if isinstance(start, AfterSequences) else None
        place = None if cursor is None else cursor.position_in(self._node.log.log_id)
        return self._asked if place is None else min(place.offset, self._asked)

    def begin(self, beginning: PlannedReplay | None) -> None:
        """Set out, or find out first where that is."""
        if beginning is not None:
            self._set_out(beginning)
            self._on_begin(beginning.foresight)
        elif not isinstance(self._wish.start, AfterSequences):
            self._on_begin(None)
        self.resume()

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
        self._node.background.leave(self)
        catch_ups = self._session.catch_ups
        if catch_ups is not None:
            catch_ups.remove(self)
            if not catch_ups:
                self._session.catch_ups = None
                self._node.catching_up.discard(self._session)

    def fail(self, error: PenstockError) -> None:
        """End before the head, and say why."""
        self.stop()
        self._on_failed(error)

    # On the way

    def resume(self) -> None:
        """Ask for a turn to send a chunk, unless one is being read or sent, or the session takes none."""
        if not self._is_busy and self._reading is None and self._session.keeps_up and not self._is_short:
            self._node.background.ask(self)

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
            self.resume()

    def _has_chunk(self) -> bool:
        """Return whether a chunk is ready and can be sent; begins to read one otherwise."""
        if self.is_over or not self._session.keeps_up:
            return False  # the session resumes it when it flows again
        if self._chunk is None and self._replay is not None:
            self._chunk = self._replay.read_now(CHUNK_BYTES)
        if self._chunk is None:
            self._begin_reading()
            return False
        # What is live by another filter comes first; and nothing may be published between here and the seam.
        self._node.tick.settle()
        return not self.is_over and self._session.keeps_up

    def _send_chunk(self) -> bool:
        """Send the chunk, and end if it was the last. Returns whether there is more to do."""
        chunk, self._chunk = self._chunk, None
        assert chunk is not None and self._replay is not None and self._account is not None
        session, now = self._session, self._node.clock.monotonic()
        alive, expired = sift(chunk.runs, now)  # it may have waited a while
        encoding, wanted = self._wish.past_encoding, [run for run in alive if self._is_wanted(run)]
        if session.credit is not None:
            wanted = self._keep_rest(chunk, wanted, session.credit)
        entries: list[Entry] = [(run, encoding) for run in wanted]
        served = sum(run.count for run in wanted)
        said = replace(chunk.statement, served=served, missing=(*chunk.statement.missing, *expired))
        self.position = self._replay.after if self._chunk is None else self._chunk.runs[0].offset - 1
        self._account.add(said, self.position)
        if isinstance(self._wish.start, AfterSequences):
            self._account.count(wanted)
        _, is_blocked = self._node.drainer.send(session, entries, now) if entries else (0, False)
        if is_blocked:
            session.is_flowing = False  # the rest waits in its outbox
        is_sent = not (is_blocked or session.first_uncommitted_id or self.is_over or self._chunk)
        if is_sent and self._replay.after == self._node.history.head:
            self._arrive(self._account)
        return not self.is_over

    def _keep_rest(self, chunk: Chunk, wanted: list[Run], credit: int) -> list[Run]:
        """Return what there is credit for.

        The rest waits here, not in the outbox, where it could be dropped.
        """
        sendable, rest = split(wanted, credit)
        if rest:
            self._chunk = Chunk(tuple(rest), replace(chunk.statement, missing=(), gaps=()))
        return sendable

    def _is_wanted(self, run: Run) -> bool:
        """Return whether a message is sent: No Local, and filters removed meanwhile."""
        session, wish = self._session, self._wish
        if wish.encoding.no_local and run.client_id == session.client_id and run.shape.door is session.door:
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
                    self._session, filter, wish.options, wish.encoding, policy=wish.policy, retained=False
                )
        except PenstockError as error:
            for filter in filters:
                self._subscribing.unsubscribe(self._session, filter)
            self._on_failed(error)
        else:
            self._on_complete(account.statement(head))

    # Reading

    def _set_out(self, beginning: PlannedReplay) -> None:
        self._replay = beginning.replay
        self.position = after = beginning.replay.after
        self._account = Account(self._node.history.cursor(after), after)

    def _begin_reading(self) -> None:
        catch_ups = self._session.catch_ups
        assert catch_ups is not None
        if catch_ups.take_slot(self):
            self._reading = get_running_loop().create_task(self._read())

    async def _search(self) -> None:
        """Find the start; a client that resumes after sequences learns now what will be missing."""
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
            self._node.background.take_step(self)  # at once: nothing may be published meanwhile
