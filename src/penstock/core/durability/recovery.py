"""Recovery at start: sessions, retained values, windows and queues of the last process.

Sessions and retained values come from the state store. In-flight windows are rebuilt from their journal, and
their messages are loaded from the log. Sessions that were behind have a position; one pass over the log from
the lowest position fills all offline queues.
"""

from collections.abc import Iterator
from itertools import groupby, islice
from operator import attrgetter
from sys import maxsize

from msgspec import Struct
from msgspec.structs import replace

from penstock.common.topics import matches
from penstock.core.delivery.inflight import Pending
from penstock.core.delivery.outbox import Entry
from penstock.core.delivery.reencoding import PendingEncoding
from penstock.core.durability.inflight_journal import Window
from penstock.core.durability.records import (
    BEHIND,
    GROUPS,
    MOVES,
    RETAINED,
    SESSIONS,
    WILLS,
    WINDOWS,
    BehindRecord,
    GroupRecord,
    MovesRecord,
    RetainedRecord,
    Sent,
    SessionRecord,
    WillRecord,
    WindowRecord,
)
from penstock.core.node import Node
from penstock.core.ports.connection import Encoding
from penstock.core.ports.log import Lost
from penstock.core.sessions.lifecycle import SessionService
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.shared import SharedGroup, group_of, is_shared
from penstock.core.subscriptions.subscription import Options, Subscription
from penstock.core.topics.retained_backlog import Backlog
from penstock.core.topics.retained_value import Extras, RetainedValue
from penstock.model import NEVER, Run, bare_shape

RUNS_AT_ONCE = 1_000
_topic_of = attrgetter("topic")
_since_of = attrgetter("since")


class Reader(Struct, frozen=True):
    """Subscriber of a topic between two offsets, with encoding and subscription."""

    who: Session | SharedGroup[Session]
    after: int
    encoding: Encoding
    wanted: Subscription
    until: int = maxsize


class Recovery:
    """Brings a node back to what the stores say."""

    def __init__(self, node: Node, session_service: SessionService) -> None:
        self._node = node
        self._session_service = session_service
        self._changed: list[Session] = []  # with past filters that have queued messages

    def restore(self) -> None:
        """Recover everything, before the first connection."""
        self._restore_values()
        sessions = self._restore_sessions()
        windows = self._restore_windows(sessions)
        self._restore_inflight(windows)
        self._restore_offline_queues()
        self._restore_wills()
        for session in list(self._node.sessions.values()):
            if not session.is_persistent:  # it was only remembered for what it leaves to others
                self._session_service.end(session)

    # Values

    def _restore_values(self) -> None:
        node, now = self._node, self._node.clock.monotonic()
        for name, record in node.state.scan(RETAINED):
            assert isinstance(record, RetainedRecord)
            shape = bare_shape(record.door, record.qos, True)
            value = RetainedValue(record.data, shape, record.client_id)
            if record.properties is not None or record.expires_at is not None:
                expires_at = self._expiry_of(record, value, now)
                value = replace(value, extras=Extras(record.properties, expires_at))
                if NEVER < expires_at <= now:
                    node.recorder.forget_value(name)
                    continue
            topic = node.topics.restore(name)
            topic.begin_after(value.sequence)
            node.log.sequencer.head = max(node.history.head, value.offset)
            node.retained.restore(topic, value)

    def _expiry_of(self, record: RetainedRecord, value: RetainedValue, now: float) -> float:
        """When a value expires; not later because the clock was set back."""
        if record.expires_at is None:
            return NEVER
        left_us = record.expires_at - max(self._node.clock.wall_us(), value.published_at)
        return now + left_us / 1_000_000

    # Sessions

    def _restore_sessions(self) -> dict[str, Session]:
        sessions: dict[str, Session] = {}
        for client_id, record in self._node.state.scan(SESSIONS):
            assert isinstance(record, SessionRecord)
            session = sessions[client_id] = self._session_service.restore(client_id, record)
            for filter, head in record.backlog.items():
                self._restore_backlog(session, filter, head)
                self._node.recorder.save(session)
        return sessions

    def _restore_backlog(self, session: Session, filter: str, head: int) -> None:
        """Retained values that were still being sent are sent again, all of them."""
        subscription = session.subscriptions.get(filter)
        if subscription is not None:
            topics, encoding = self._node.retained.match(filter), subscription.encoding.as_retained()
            session.backlog = session.backlog or {}
            session.backlog[filter] = Backlog(topics, encoding, head, session.client_id, session.door)

    def _restore_wills(self) -> None:
        for number, record in self._node.state.scan(WILLS):
            assert isinstance(record, WillRecord)
            self._session_service.wills.restore(int(number), record)

    # What was on its way

    def _restore_windows(self, sessions: dict[str, Session]) -> dict[Session, Window]:
        windows: dict[Session, Window] = {}
        for client_id, record in self._node.state.scan(WINDOWS):
            assert isinstance(record, WindowRecord)
            if client_id in sessions:
                windows[sessions[client_id]] = Window(record)
            else:
                self._node.recorder.delete(WINDOWS, client_id)
        last, moved = -1, dict[Session, None]()
        for last, journal in self._node.state.replay(MOVES):
            assert isinstance(journal, MovesRecord)
            for client_id, steps in journal.steps.items():
                session = sessions.get(client_id)
                if session is None or last < session.born:
                    continue
                window = windows.setdefault(session, Window())
                if last > window.steps_until:
                    window.make(steps)
                    moved[session] = None
        self._node.recorder.continue_after(last, moved)
        return windows

    def _restore_inflight(self, windows: dict[Session, Window]) -> None:
        on_their_way = [sent for window in windows.values() for sent in window.sent.values() if sent]
        offsets = {sent.offset for sent in on_their_way}
        found = self._node.log.load(sorted(offsets))
        found |= self._find_values(offsets - found.keys())
        for session, window in windows.items():
            if window.received:
                session.received = dict.fromkeys(window.received)
            if not window.sent:
                continue
            inflight = self._node.drainer.window(session)
            for number, sent in window.sent.items():
                pending = None if sent is None else self._find_pending(session, sent, found)
                if pending is not None or sent is None or sent.level == 2:
                    inflight.entries[number] = pending
                if pending is None and sent is not None and not sent.is_retained:
                    # A value that is not there was replaced by a newer one, which it gets.
                    self._node.offline_fetch.note_gone(session.client_id, sent.offset)

    def _find_values(self, offsets: set[int]) -> dict[int, Run]:
        """Retained values by offset: a message of which nothing but the value is kept is not in the log."""
        values = [(topic.name, topic.retained) for topic in self._node.topics.values()] if offsets else []
        return {
            value.offset: value.run(name)
            for name, value in values
            if value is not None and value.offset in offsets
        }

    def _find_pending(self, session: Session, sent: Sent, found: dict[int, Run]) -> Pending | None:
        run = found.get(sent.offset)
        if run is None:
            return None
        encoding: Encoding | None
        if sent.share is not None:
            group = self._node.router.find_group(sent.share)
            member = group.members.get(session) if isinstance(group, SharedGroup) else None
            encoding = None if member is None else member.encoding
        else:
            encoding = self._node.offline_fetch.encoding_of(session, run)
        if encoding is None or min(run.shape.qos, encoding.qos) != sent.level:
            # It wants this no more, or otherwise, and gets it all the same, as it was sent first.
            encoding = PendingEncoding((Options(sent.level),))
        return Pending(run, encoding.as_retained() if sent.is_retained else encoding, sent.level)

    # Offline queues

    def _restore_offline_queues(self) -> None:
        positions = self._find_positions()
        groups = self._find_groups()
        self._offer_again(groups)
        waiting = {group: record.position for group, record in groups.items() if record.position is not None}
        if not positions and not waiting:
            return
        self._changed = [session for session in positions if session.past_subscriptions]
        readers: dict[str, list[Reader]] = {}
        now = self._node.clock.monotonic()

        def wanted(topic: str) -> bool:
            readers[topic] = list(self._find_readers(topic, positions, waiting))
            return bool(readers[topic])

        found = self._node.log.scan(min((*positions.values(), *waiting.values())), wanted)
        for topic, group in groupby(found, _topic_of):
            while some := list(islice(group, RUNS_AT_ONCE)):
                runs = [run for run in some if isinstance(run, Run) and not run.is_expired(now)]
                lost = [each for each in some if isinstance(each, Lost)]
                for reader in readers[topic]:
                    if runs:
                        self._owe_all(runs, reader)
                    self._note_lost(lost, reader)

    def _note_lost(self, lost: list[Lost], reader: Reader) -> None:
        """Record a queued message that cannot be read; part of it may have been delivered before."""
        who = reader.who.client_id if isinstance(reader.who, Session) else reader.who.filter
        for each in lost:
            if reader.after < each.until:
                self._node.offline_fetch.note_damaged(who, each)

    def _owe_all(self, runs: list[Run], reader: Reader) -> None:
        """Owe runs of one topic in their order: at once where nothing has to be decided."""
        offline_queue = (
            reader.who.offline_queue
            if isinstance(reader.who, Session) and not reader.encoding.no_local
            else None
        )
        is_all = reader.after < runs[0].offset and runs[-1].offset + runs[-1].count - 1 <= reader.until
        if not (is_all and offline_queue is not None and offline_queue.offer_all(runs)):
            for run in runs:
                self._owe(run, reader)

    def _owe(self, run: Run, reader: Reader) -> None:
        skip = max(reader.after + 1 - run.offset, 0)
        stop = min(reader.until + 1 - run.offset, run.count)
        if skip >= stop:
            return
        rest = run.part(skip, stop - skip)
        who, encoding, wanted = reader.who, reader.encoding, reader.wanted
        if isinstance(who, SharedGroup):
            self._node.queues.enqueue_for_group(who, rest)
        elif encoding.no_local and run.client_id == who.client_id and run.shape.door is who.door:
            return
        else:
            self._node.queues.enqueue_offline(
                who, rest, encoding, self._node.queues.choose_policy(run, wanted)
            )

    def _find_positions(self) -> dict[Session, int]:
        positions: dict[Session, int] = {}
        for client_id, record in self._node.state.scan(BEHIND):
            assert isinstance(record, BehindRecord)
            session = self._node.sessions.get(client_id)
            if session is not None:
                positions[session] = session.position = record.position
            else:
                self._node.recorder.delete(BEHIND, client_id)
        return positions

    def _find_groups(self) -> dict[SharedGroup[Session], GroupRecord]:
        groups: dict[SharedGroup[Session], GroupRecord] = {}
        for filter, record in self._node.state.scan(GROUPS):
            assert isinstance(record, GroupRecord)
            group = self._node.router.find_group(filter)
            if isinstance(group, SharedGroup) and group.queues_offline:
                groups[group] = record
                self._node.recorder.continue_group(group, record)
            else:
                self._node.recorder.delete(GROUPS, filter)
        return groups

    def _offer_again(self, groups: dict[SharedGroup[Session], GroupRecord]) -> None:
        """Return unacknowledged messages of group members to their groups."""
        entries: dict[SharedGroup[Session], dict[int, Entry]] = {}
        for session in self._node.sessions.values():
            for run, encoding in session.inflight.take_qos1(is_shared) if session.inflight else ():
                owner = group_of(encoding)
                assert owner is not None
                entries.setdefault(owner, {})[run.offset] = (run, encoding)
                self._node.recorder.touch(session)
        for group, record in groups.items():
            found = self._node.log.load(record.again)
            for offset in record.again:
                if offset in found:
                    entries.setdefault(group, {})[offset] = (found[offset], group.speaker.encoding)
                else:
                    self._node.offline_fetch.note_gone(group.filter, offset)
        for offered in entries.values():
            self._node.queues.return_to_groups([offered[offset] for offset in sorted(offered)])

    def _find_readers(
        self, topic: str, positions: dict[Session, int], waiting: dict[SharedGroup[Session], int]
    ) -> Iterator[Reader]:
        """Return the sessions that are behind on a topic, each with its offset.

        Past filters of a session come first: they have the lower offsets.
        """
        audience = self._node.router.find_audience(topic)
        present: dict[Session, Reader] = {}
        for encoding, members in audience.classes():
            for session in members if encoding.qos else ():
                if session in positions:
                    mine = (session.subscriptions.get(group.filter) for group in audience.groups)
                    since = min(each.since for each in mine if each is not None and each.options.qos)
                    after = max(positions[session], since)
                    present[session] = Reader(session, after, encoding, members[session])
        for session in self._changed:
            until = present[session].after if session in present else maxsize
            yield from _find_former(session, topic, positions[session], until)
        yield from present.values()
        for group in audience.shared:
            if group in waiting:
                yield Reader(group, waiting[group], group.speaker.encoding, group.speaker)


def _find_former(session: Session, topic: str, position: int, until: int) -> Iterator[Reader]:
    """Return what past filters of a session still cover of a topic; each offset once."""
    for each in sorted(session.past_subscriptions, key=_since_of):
        after, last = max(position, each.since), min(each.until, until)
        if after < last and matches(each.filter, topic):
            encoding = PendingEncoding((each.options,))
            wanted = Subscription(each.filter, each.options, encoding, each.policy, each.since)
            yield Reader(session, after, encoding, wanted, last)
            position = last
