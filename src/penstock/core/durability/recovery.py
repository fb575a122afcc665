"""Recovery at start: sessions, retained values, windows and queues of the last process.

Sessions and retained values come from the state store. In-flight windows are rebuilt from their journal, and
their messages are loaded from the log. Sessions that were behind have a position, from which
`offline_recovery.py` fills their queues.
"""

from itertools import islice

from msgspec.structs import replace

from penstock.core.delivery.inflight import Pending
from penstock.core.delivery.outbox import Entry
from penstock.core.delivery.reencoding import PendingEncoding
from penstock.core.durability.inflight_journal import Window
from penstock.core.durability.offline_recovery import OfflineRecovery
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
from penstock.core.sessions.lifecycle import SessionService
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.shared import SharedGroup, group_of, is_shared
from penstock.core.subscriptions.subscription import Options
from penstock.core.topics.retained_backlog import Backlog
from penstock.core.topics.retained_value import Extras, RetainedValue
from penstock.runs import NEVER, Run, bare_shape

VALUES_AT_ONCE = 10_000
"""Retained values whose sequences are looked up together."""


class Recovery:
    """Brings a node back to what the stores say."""

    def __init__(self, node: Node, session_service: SessionService) -> None:
        self._node = node
        self._session_service = session_service

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
        stored = self._node.state.scan(RETAINED)
        while some := list(islice(stored, VALUES_AT_ONCE)):
            sequences = self._node.log.last_sequences([name for name, _ in some])
            for name, record in some:
                assert isinstance(record, RetainedRecord)
                self._restore_value(name, record, sequences[name])

    def _restore_value(self, name: str, record: RetainedRecord, last_sequence: int) -> None:
        node = self._node
        value = RetainedValue(record.data, bare_shape(record.door, record.qos, True), record.client_id)
        if record.properties is not None or record.expires_at is not None:
            now = node.clock.monotonic()
            expires_at = self._expiry_of(record, value, now)
            value = replace(value, extras=Extras(record.properties, expires_at))
            if NEVER < expires_at <= now:
                node.recorder.forget_value(name)
                return
        topic = node.topics.restore(name, max(last_sequence, value.sequence))
        if value.offset > node.history.head:
            node.log.sequencer.head = value.offset
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
            encodings: dict[str, Encoding | None] = {}  # most messages have a topic that others have too
            for number, sent in window.sent.items():
                pending = None if sent is None else self._find_pending(session, sent, found, encodings)
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

    def _find_pending(
        self, session: Session, sent: Sent, found: dict[int, Run], encodings: dict[str, Encoding | None]
    ) -> Pending | None:
        run = found.get(sent.offset)
        if run is None:
            return None
        encoding: Encoding | None
        if sent.share is not None:
            group = self._node.router.find_group(sent.share)
            member = group.members.get(session) if isinstance(group, SharedGroup) else None
            encoding = None if member is None else member.encoding
        else:
            if run.topic not in encodings:
                encodings[run.topic] = self._node.offline_fetch.encoding_of(session, run)
            encoding = encodings[run.topic]
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
        OfflineRecovery(self._node, positions, waiting).restore()

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
