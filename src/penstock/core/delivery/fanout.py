"""Fan-out: the fast path from a stretch of runs to its subscribers.

Bytes are encoded once per class of subscribers, and each subscriber gets one write per flush. Sessions that
are offline, slow or catching up are left to `queueing.py` and `drain.py`, and shared groups to the latter.
"""

from collections.abc import Iterable, Sequence
from operator import attrgetter

from penstock.core.delivery.drain import Drainer
from penstock.core.delivery.queueing import Queues
from penstock.core.diagnostics.counters import OWN, Counters, way_out
from penstock.core.diagnostics.ledger import Ledger
from penstock.core.diagnostics.topic_stats import TopicStats
from penstock.core.ports.connection import Encoding, Frame
from penstock.core.runtime.clock import Clock
from penstock.core.runtime.tick import Stretch, TrainPart
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.audience import Members, Others
from penstock.core.subscriptions.shared import SharedGroup
from penstock.model import Reason
from penstock.runs import Run

_count_of = attrgetter("count")


class Fanout:
    """Delivers the stretches of a turn to flowing sessions."""

    def __init__(
        self,
        clock: Clock,
        ledger: Ledger,
        counters: Counters,
        topic_stats: TopicStats,
        queues: Queues,
        drainer: Drainer,
        *,
        is_durable: bool,
    ) -> None:
        self._clock = clock
        self._ledger = ledger
        self._delivered_at = counters.delivered_at
        self._topic_stats = topic_stats
        self._queues = queues
        self._drainer = drainer
        self._commit_gate = drainer.commit_gate
        self._is_durable = is_durable
        self._has_given = False  # a session got a part of this stretch

    def deliver(self, stretches: list[Stretch]) -> None:
        """Deliver the stretches of a turn, with one write per flowing session."""
        now = self._clock.monotonic()
        dirty: list[Session] = []
        failure: Exception | None = None
        if self._queues.outcomes:
            self._queues.outcomes.clear()
        for stretch in stretches:
            runs, qos, part = stretch.runs, stretch.shape.qos, stretch.part
            reach, self._has_given = 0, False
            for encoding, members in stretch.audience.classes():
                try:
                    if part is not None:
                        if not encoding.no_local and encoding.passes(
                            stretch.shape, part.longest if encoding.limit_bytes else 0
                        ):
                            reach += self._deliver_part(encoding, members, stretch, part, dirty)
                            continue
                        runs = stretch.as_runs()
                    if encoding.no_local:
                        reach += self._deliver_to_others(encoding, members, runs, now, dirty)
                    elif qos and encoding.qos:
                        reach += self._deliver_numbered(encoding, members, runs, now, dirty)
                    else:
                        reach += self._deliver_shared_bytes(encoding, members, runs, now, dirty)
                except Exception as error:  # of one class; the others get theirs
                    failure = error
                    self._note_failure(members, stretch.as_runs())
            for group in stretch.audience.shared:
                for run in stretch.as_runs():
                    self._deliver_to_one(group, run, now, dirty)
            if reach or self._has_given:
                stretch.reach = reach
        self._drainer.write(dirty)
        self._topic_stats.note(stretches)
        if failure is not None:
            raise failure

    def _note_failure(self, members: Members[Session], runs: list[Run]) -> None:
        for session in members:
            for run in runs:
                self._ledger.add(run, session.client_id, Reason.FAILED)

    def _deliver_part(
        self,
        encoding: Encoding,
        members: Members[Session],
        stretch: Stretch,
        part: TrainPart,
        dirty: list[Session],
    ) -> int:
        """Send messages of a train as they came. Returns how many sessions got them."""
        flowing, data = 0, part.slab
        for session in members:
            if session.is_flowing:
                parts = session.parts
                if not parts:
                    dirty.append(session)
                parts.append(data)
                flowing += 1
            else:
                self._queues.enqueue_all(session, stretch.as_runs(), encoding, members[session])
        if flowing:
            self._delivered_at[way_out(stretch.shape, session.door)] += flowing * len(part.topics)
        return flowing

    def _deliver_shared_bytes(
        self, encoding: Encoding, members: Members[Session], runs: list[Run], now: float, dirty: list[Session]
    ) -> int:
        """Send the same bytes to all members. Returns how many sessions got them."""
        data: bytes | None = None
        flowing = 0
        for session in members:
            if session.is_flowing:
                if data is None:
                    data = encoding.encode(runs, now)
                parts = session.parts
                if not parts:
                    dirty.append(session)
                parts.append(data)
                flowing += 1
            else:
                self._queues.enqueue_all(session, runs, encoding, members[session])
        if flowing:
            door = OWN if runs[0].shape.door is OWN else session.door  # as `way_out`, without a call
            self._delivered_at[door] += flowing * (runs[0].count if len(runs) == 1 else _count(runs))
        if encoding.limit_bytes:
            self._note_oversize(encoding, members, runs, now)
        return flowing

    def _deliver_numbered(
        self,
        encoding: Encoding,
        members: Members[Session],
        runs: list[Run],
        now: float,
        dirty: list[Session],
    ) -> int:
        """Send with a packet id for each member. Returns how many sessions got all of it."""
        reach = messages = 0
        frames: list[Frame] | None = None
        is_stored = self._is_durable
        level = min(runs[0].shape.qos, encoding.qos)
        for session in members:
            was_flowing = session.is_flowing
            if was_flowing and frames is None:
                frames = encoding.frames(runs, now)
            inflight = session.inflight
            if inflight is None:
                inflight = self._drainer.window(session)
            if was_flowing and frames is not None and inflight.room >= len(frames):
                parts = session.parts
                if not parts:
                    dirty.append(session)
                first = inflight.add_all(frames, encoding, level, parts)
                messages += len(frames)
                reach += 1
                if is_stored:
                    self._commit_gate.note(session, first, level)
            else:
                self._queues.enqueue_all(session, runs, encoding, members[session])
                if was_flowing:  # its window is too small for all of this at once
                    self._drainer.wake(session)
        if messages:
            self._delivered_at[way_out(runs[0].shape, session.door)] += messages
        if encoding.limit_bytes:
            self._note_oversize(encoding, members, runs, now)
        return reach

    def _deliver_to_others(
        self, encoding: Encoding, members: Members[Session], runs: list[Run], now: float, dirty: list[Session]
    ) -> int:
        """No Local: members get everything but their own messages.

        Returns how many sessions got everything; the other deliveries are counted here.
        """
        deliver = self._deliver_numbered if encoding.qos and runs[0].shape.qos else self._deliver_shared_bytes
        door, senders = runs[0].shape.door, {run.client_id for run in runs}
        own = {
            session: wanted
            for session, wanted in members.items()
            if session.client_id in senders and session.door is door
        }
        reach = deliver(encoding, Others(members, own), runs, now, dirty)
        for session, subscription in own.items():
            others = [run for run in runs if run.client_id != session.client_id]
            if others and deliver(encoding, {session: subscription}, others, now, dirty):
                self._topic_stats.add(others)
                self._has_given = True
        return reach

    def _deliver_to_one(
        self, group: SharedGroup[Session], run: Run, now: float, dirty: list[Session]
    ) -> None:
        """Shared group: give each message to one member, behind what the group has queued."""
        for index in range(run.count):
            session = None if group.offline_queue else group.choose()
            if session is None:
                self._queues.enqueue_for_group(group, run.part(index, run.count - index))
                return
            if self._drainer.give(group, session, run.part(index, 1), now, dirty):
                self._has_given = True

    def _note_oversize(
        self, encoding: Encoding, members: Iterable[Session], runs: Sequence[Run], now: float
    ) -> None:
        """Record oversize messages for flowing sessions; queued sessions are recorded when drained."""
        reached = [session for session in members if session.is_flowing]
        is_numbered = bool(encoding.qos and runs[0].shape.qos)  # then only what left was counted
        for run in encoding.oversize(runs, now) if reached else ():
            if not is_numbered:
                self._delivered_at[way_out(run.shape, reached[0].door)] -= run.count * len(reached)
            for session in reached:
                self._ledger.add(run, session.client_id, Reason.PACKET_TOO_LARGE)
            self._topic_stats.add((run,), -len(reached))


def _count(runs: list[Run]) -> int:
    """Return the number of messages in runs of rising offsets; constant time for single messages."""
    span = runs[-1].offset + runs[-1].count - runs[0].offset
    return span if span == len(runs) else sum(map(_count_of, runs))
