"""Explanation of a non-delivery: "why did this client not get this message?".

Recorded facts come first: the ledger's row, or the queue that holds the message. Everything else is derived
from the present state, and the text says so: past subscriptions are not recorded.
"""

from asyncio import Event, sleep
from collections.abc import Iterable, Iterator
from itertools import islice

from msgspec.structs import replace

from penstock.common.topics import matches, split_share
from penstock.core.access.access import ADMIN_FILTER
from penstock.core.access.identity import Identity
from penstock.core.broker import Broker
from penstock.core.diagnostics.ledger import Row
from penstock.core.diagnostics.why_types import REASONS, Code, Explanation, Published, Waiting
from penstock.core.sessions.session import Session
from penstock.core.streams.stream import GROUP, stream_of
from penstock.core.subscriptions.shared import SharedGroup
from penstock.errors import NotAuthorized
from penstock.runs import Run

LOOKED_AT_A_SLICE = 20_000
"""Most rows or queued messages that are examined before other work gets its turn."""
ENTRIES_AT_MOST = 1_000
"""Most rows and sessions in an explanation."""


def check_asker(broker: Broker, who: Identity, topic: str, client_id: str | None) -> None:
    """Check the right to ask: only about an own session and a readable topic.

    Raises:
        NotAuthorized: it is neither, and the caller is not an administrator.
    """
    sessions = [] if client_id is None else broker.clients.find(client_id)
    # Anyone may choose a client id, so without a user that proves nothing.
    is_own = who.user is not None and {each.identity.user for each in sessions} == {who.user}
    may_ask = is_own and broker.access.may_read(who, topic)
    if not may_ask and not broker.access.may_subscribe(who, ADMIN_FILTER):
        raise NotAuthorized("not allowed to ask about others")


async def explain(broker: Broker, topic: str, sequence: int, client_id: str | None = None) -> Explanation:
    """Explain the delivery of a message to a client; without a client, to all subscribers."""
    known = broker.topics.get(topic)
    newest = broker.catalog.last_sequence(topic) if known is None else known.sequence
    if not 1 <= sequence <= newest and not await Case(broker, topic, sequence, None).rows():
        is_forgotten = known is None and 1 <= sequence <= broker.topics.forgotten_sequence
        code, text = _not_found(topic, sequence, newest, is_forgotten=is_forgotten)
        return Explanation(topic, sequence, client_id, code, text, newest=newest)
    run, published = await _find(broker, topic, sequence)
    case = Case(broker, topic, sequence, None if run is None else run.offset)
    explanation = await (case.explain_all() if client_id is None else case.judge(client_id, published))
    forgotten = broker.ledger.rows_forgotten
    newest = max(newest, sequence)  # the topic may have been forgotten
    return replace(explanation, message=published, newest=newest, rows_forgotten=forgotten)


def _not_found(topic: str, sequence: int, newest: int, *, is_forgotten: bool) -> tuple[Code, str]:
    """Return the explanation of a message that is neither known nor recorded."""
    if is_forgotten:
        text = (
            f"{topic} is not known now, and nothing is recorded of this message: "
            "if there was one, it is too long ago to know."
        )
        return Code.NO_RECORD, text
    has_had = f"the last one has the sequence {newest}" if newest else "it has had none"
    return Code.NOT_PUBLISHED, f"There was no message {sequence} on {topic}: {has_had}."


async def _find(broker: Broker, topic: str, sequence: int) -> tuple[Run | None, Published]:
    """The message, if it is still there, and what can be said of it."""
    chunk = await broker.history.between(topic, sequence, sequence)
    if not chunk.runs:
        missing = chunk.statement.missing
        return None, Published(missing=missing[0].reason if missing else None)
    run = chunk.runs[0]
    shape = run.shape
    return run, Published(run.published_at, run.client_id, shape.qos, shape.retain, shape.door, run.offset)


class Case:
    """One message, and where to look for it. Its offset is None if the message is not there any more."""

    def __init__(self, broker: Broker, topic: str, sequence: int, offset: int | None) -> None:
        self._broker = broker
        self._topic = topic
        self._sequence = sequence
        self._offset = offset

    # Of one client

    async def judge(self, client_id: str, published: Published) -> Explanation:
        """The verdict for one client: first what is recorded, then what can be derived."""
        clients = self._broker.clients
        groups = {session: self._groups_of(session) for session in clients.find(client_id)}
        names = {client_id, *(group.filter for some in groups.values() for group in some)}
        if client_id == GROUP:
            waiting = list(self._in_stream())
        else:
            waiting = [place for each, some in groups.items() for place in self._places(each, some)]
        if waiting:
            return self._explain_waiting(client_id, waiting)
        rows = [row for row in await self.rows() if not names.isdisjoint(self._names_of(row))]
        if rows:
            return self._explain_row(client_id, rows)
        if not groups:
            text = f"There is no session of {client_id} now, and nothing is recorded of this message for it."
            return self._verdict(client_id, Code.NO_SESSION, text)
        verdicts = [self._derive(session, some, published) for session, some in groups.items()]
        return next((each for each in verdicts if each.code is Code.NO_RECORD), verdicts[0])

    def _names_of(self, row: Row) -> tuple[str, str]:
        """The session of a row, and its client."""
        return row.client_id, self._broker.clients.client_of(row.client_id)

    def _shown(self, rows: Iterable[Row]) -> list[Row]:
        """The first rows, with the ids of clients in place of those of streams."""
        clients = self._broker.clients
        return [
            replace(row, client_id=clients.client_of(row.client_id)) for row in islice(rows, ENTRIES_AT_MOST)
        ]

    def _explain_waiting(self, client_id: str, waiting: list[Waiting]) -> Explanation:
        first = waiting[0]
        if first.place == "in-flight":
            text = f"It was sent to {client_id}, which has not acknowledged it yet."
            return self._verdict(client_id, Code.IN_FLIGHT, text, waiting=waiting)
        ahead = {0: "next to leave", 1: "behind one other"}.get(first.ahead, f"behind {first.ahead} others")
        text = f"It waits for {client_id}, {_PLACES[first.place]}, {ahead}."
        if not first.is_connected:
            text += f" {_ABSENCES.get(first.place, 'The client is not connected')}."
        return self._verdict(client_id, Code.WAITING, text, waiting=waiting)

    def _explain_row(self, client_id: str, rows: list[Row]) -> Explanation:
        row = rows[-1]
        who = client_id if client_id in self._names_of(row) else f"{client_id}'s shared group {row.client_id}"
        text = f"It was not delivered to {who}: {REASONS[row.reason]}."
        if row.setting:
            text += f" The limit is set by `{row.setting}`."
        return self._verdict(client_id, Code.NOT_DELIVERED, text, rows=rows)

    def _derive(
        self, session: Session, groups: list[SharedGroup[Session]], published: Published
    ) -> Explanation:
        client_id, topic = session.name, self._topic
        if not self._broker.access.may_read(session.identity, topic):
            return self._verdict(client_id, Code.NOT_AUTHORIZED, f"{client_id} may not read {topic}.")
        wanted = [each for each in session.subscriptions.values() if self._is_meant(each.filter)]
        filters = [each.filter for each in wanted]
        if not wanted:
            text = (
                f"{client_id} has no subscription now that matches {topic}. "
                "Which ones it had when the message was published is not recorded."
            )
            return self._verdict(client_id, Code.NO_SUBSCRIPTION, text)
        is_own = published.client_id == client_id and published.door is session.door
        if is_own and all(each.options.no_local for each in wanted):
            text = f"{client_id} published it, and asked not to get what it publishes itself."
            return self._verdict(client_id, Code.OWN_MESSAGE, text, filters=filters)
        since = min(each.since for each in wanted)
        if published.offset is not None and published.offset <= since:
            text = f"{client_id} subscribed, or asked for QoS 1 or 2, only after it was published."
            return self._verdict(client_id, Code.SUBSCRIBED_LATER, text, filters=filters)
        text = f"Nothing is recorded against it and it does not wait for {client_id}"
        if groups and len(groups) == len(wanted):
            text += ": it was delivered to a member of the shared group, or it is too long ago to know."
        else:
            text += ": it was delivered, or it is too long ago to know."
        return self._verdict(client_id, Code.NO_RECORD, text, filters=filters)

    # Of everyone

    async def explain_all(self) -> Explanation:
        """Explain what became of the message for all subscribers."""
        audience = self._broker.audience_of(self._topic)
        sessions = [session for _, members in audience.classes() for session in members]
        sessions += [session for group in audience.shared for session in group.members]
        everyone: list[Session | SharedGroup[Session]] = [
            *audience.shared,
            *dict.fromkeys(sessions),
        ]  # each once
        waiting = list(self._in_stream())
        looked_at = 0
        for who in everyone:
            waiting += self._in_group(who) if isinstance(who, SharedGroup) else self._places(who, [])
            looked_at += _size_of(who)
            if looked_at >= LOOKED_AT_A_SLICE:
                looked_at = 0
                await sleep(0)
        rows = await self.rows()  # what has left a queue meanwhile is there by now
        waited_for = {each.client_id for each in waiting}
        return Explanation(
            self._topic,
            self._sequence,
            None,
            Code.PUBLISHED,
            self._sum_up(len(rows), waited_for, len(audience)),
            rows=self._shown(rows),
            waiting=waiting[:ENTRIES_AT_MOST],
            is_truncated=len(rows) > ENTRIES_AT_MOST or len(waiting) > ENTRIES_AT_MOST,
        )

    def _sum_up(self, rows: int, waited_for: set[str], subscribers: int) -> str:
        """The same in sentences."""
        count = len(waited_for - {GROUP})
        missed = {0: "No failed deliveries recorded.", 1: "One failed delivery recorded."}
        waits = {
            0: "Queued in its stream for the next receiver." if waited_for else "Not queued for anyone.",
            1: "Queued for one subscriber.",
        }
        has = {0: "no subscribers", 1: "one subscriber"}
        return " ".join(
            (
                "It was published.",
                missed.get(rows, f"{rows} failed deliveries recorded."),
                waits.get(count, f"Queued for {count} subscribers."),
                f"{self._topic} has {has.get(subscribers, f'{subscribers} subscribers')} now.",
            )
        )

    # Where to look

    async def rows(self) -> list[Row]:
        """Return the ledger's rows. A message that was gone already has an offset only."""
        recorded = Event()
        self._broker.when_losses_recorded(recorded.set)
        await recorded.wait()
        rows = list(self._broker.ledger.rows())  # at once, because they come and go
        found: list[Row] = []
        for start in range(0, len(rows), LOOKED_AT_A_SLICE):
            found += [row for row in rows[start : start + LOOKED_AT_A_SLICE] if self._is_about_it(row)]
            await sleep(0)
        return found

    def _is_about_it(self, row: Row) -> bool:
        at = self._sequence if row.topic == self._topic else None if row.topic else self._offset
        return at is not None and row.first <= at <= row.last

    def _places(self, session: Session, groups: Iterable[SharedGroup[Session]]) -> Iterator[Waiting]:
        """Wherever the message waits for a session, or for a shared group that it is in."""
        is_connected = session.connection is not None
        inflight = session.inflight.entries.values() if session.inflight else ()
        if any(pending is not None and self._is_it(pending.run) for pending in inflight):
            yield Waiting(session.name, "in-flight", 0, is_connected)
        for place, queue in (("outbox", session.outbox), ("owed", session.offline_queue)):
            ahead = self._position(run for run, _ in queue.entries()) if queue else None
            if ahead is None and queue and self._offset is not None:
                ahead = queue.place_of(self._offset)
            if ahead is not None:
                yield Waiting(session.name, place, ahead, is_connected)
        for group in groups:
            yield from self._in_group(group)
        if self._is_in_backlog(session):
            yield Waiting(session.name, "retained", 0, is_connected)

    def _in_group(self, group: SharedGroup[Session]) -> Iterator[Waiting]:
        ahead = self._position(run for run, _ in group.offline_queue.entries())
        if ahead is not None:
            yield Waiting(group.filter, "group", ahead, bool(group.present))

    def _in_stream(self) -> Iterator[Waiting]:
        """Return whether the message is queued in a stream."""
        stream = stream_of(self._broker.topics.get(self._topic))
        ahead = None if stream is None else self._position(stream.messages)
        if stream is not None and ahead is not None:
            yield Waiting(GROUP, "stream", ahead, stream.receivers is not None)

    def _position(self, runs: Iterable[Run]) -> int | None:
        """Return the number of messages before this one; None if it is not queued."""
        ahead = 0
        for run in runs:
            if self._is_it(run):
                return ahead + self._sequence - run.sequence
            ahead += run.count
        return None

    def _is_in_backlog(self, session: Session) -> bool:
        """Retained values are still being sent to a session, and this is one of those that are meant."""
        topic = self._broker.topics.get(self._topic)
        value = None if topic is None else topic.retained
        if value is None or value.sequence != self._sequence:
            return False
        backlogs = (session.backlog or {}).items()
        return any(value.offset <= each.head and self._is_meant(filter) for filter, each in backlogs)

    def _is_it(self, run: Run) -> bool:
        return run.topic == self._topic and run.sequence <= self._sequence < run.sequence + run.count

    def _is_meant(self, filter: str) -> bool:
        return matches(split_share(filter)[1], self._topic)

    def _groups_of(self, session: Session) -> list[SharedGroup[Session]]:
        return [group for group in session.groups or () if matches(group.inner, self._topic)]

    def _verdict(
        self,
        client_id: str,
        code: Code,
        text: str,
        *,
        rows: Iterable[Row] = (),
        waiting: Iterable[Waiting] = (),
        filters: Iterable[str] = (),
    ) -> Explanation:
        return Explanation(
            self._topic,
            self._sequence,
            client_id,
            code,
            text,
            rows=self._shown(rows),
            waiting=list(waiting),
            filters=list(filters),
        )


def _size_of(who: Session | SharedGroup[Session]) -> int:
    """Return how much there is to examine."""
    queues = (
        (who.offline_queue,)
        if isinstance(who, SharedGroup)
        else (who.inflight, who.outbox, who.offline_queue)
    )
    return 1 + sum(len(queue) for queue in queues if queue)


_PLACES = {
    "outbox": "in its outbox",
    "owed": "in its offline queue",
    "group": "in the offline queue of its shared group",
    "retained": "among the retained values that are still being sent to it",
    "stream": "in the stream of its topic",
}
_ABSENCES = {"stream": "Nobody receives there now"}
