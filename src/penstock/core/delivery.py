"""From a stretch to its subscribers: the fast path.

Bytes are encoded once per class and added to each member; every member then gets one write. A member
that is away, slow, or still catching up is left to `lagging.py`.
"""

from collections.abc import Iterable, Sequence
from operator import attrgetter

from penstock.core.audience import Members, Others
from penstock.core.clock import Clock
from penstock.core.counters import OWN, Counters, way_out
from penstock.core.keeping import Keeping
from penstock.core.lagging import CHUNK_BYTES, Lagging
from penstock.core.leaving import Leaving
from penstock.core.ledger import Ledger
from penstock.core.ports import Form, Frame
from penstock.core.recording import Recording
from penstock.core.sessions import Session
from penstock.core.shared import SharedGroup
from penstock.core.tallies import Tallies
from penstock.core.tick import Stretch
from penstock.model import NEVER, Reason, Run

_count_of = attrgetter("count")


class Delivery:
    """Gets a turn's stretches to everyone who keeps up."""

    def __init__(
        self,
        clock: Clock,
        ledger: Ledger,
        counters: Counters,
        tallies: Tallies,
        keeping: Keeping,
        lagging: Lagging,
        leaving: Leaving,
        recording: Recording,
    ) -> None:
        self._clock = clock
        self._ledger = ledger
        self._delivered_at = counters.delivered_at
        self._tallies = tallies
        self._keeping = keeping
        self._lagging = lagging
        self._leaving = leaving
        self._recording = recording
        self._has_given = False  # to some, who got a part of a stretch
        lagging.on_caught_up = self.serve_groups

    def deliver(self, stretches: list[Stretch]) -> None:
        """Send a turn's stretches to everyone they reach, with one write for each who keeps up."""
        now = self._clock.monotonic()
        dirty: list[Session] = []
        failure: Exception | None = None
        if self._keeping.outcomes:
            self._keeping.outcomes.clear()
        for stretch in stretches:
            runs, qos = stretch.runs, stretch.shape.qos
            reach, self._has_given = 0, False
            for form, members in stretch.audience.classes():
                try:
                    if form.no_local:
                        reach += self._deliver_to_others(form, members, runs, now, dirty)
                    elif qos and form.qos:
                        reach += self._deliver_numbered(form, members, runs, now, dirty)
                    else:
                        reach += self._deliver_shared_bytes(form, members, runs, now, dirty)
                except Exception as error:  # of one class; the others get theirs
                    failure = error
                    self._note_failure(members, runs)
            for group in stretch.audience.shared:
                for run in runs:
                    self._deliver_to_one(group, run, now, dirty)
            if reach or self._has_given:
                stretch.reach = reach
        self._write(dirty)
        self._tallies.note(stretches)
        if failure is not None:
            raise failure

    def _note_failure(self, members: Members, runs: list[Run]) -> None:
        for session in members:
            for run in runs:
                self._ledger.add(run, session.client_id, Reason.FAILED)

    def _write(self, dirty: list[Session]) -> None:
        for session in dirty:
            parts = session.parts
            if not parts:
                continue  # all of it was too large, or it is written already
            data = parts[0] if len(parts) == 1 else b"".join(parts)
            parts.clear()
            if session.gate:
                self._leaving.write(session, data)
            elif session.sink is not None:
                session.sink.write(data)
        if self._keeping.credited:
            self._lagging.drain_credited()
        if self._keeping.too_slow:
            self._keeping.close_slow()

    def _deliver_shared_bytes(
        self, form: Form, members: Members, runs: list[Run], now: float, dirty: list[Session]
    ) -> int:
        """Send the same bytes to all; answer how many sessions got them."""
        data: bytes | None = None
        flowing = 0
        for session in members:
            if session.is_flowing:
                if data is None:
                    data = form.encode(runs, now)
                parts = session.parts
                if not parts:
                    dirty.append(session)
                parts.append(data)
                flowing += 1
            else:
                self._keeping.hold_all(session, runs, form, members[session])
        if flowing:
            door = OWN if runs[0].shape.door is OWN else session.door  # as `way_out`, without a call
            self._delivered_at[door] += flowing * (runs[0].count if len(runs) == 1 else _count(runs))
        if form.limit_bytes:
            self._note_oversize(form, members, runs, now)
        return flowing

    def _deliver_numbered(
        self, form: Form, members: Members, runs: list[Run], now: float, dirty: list[Session]
    ) -> int:
        """Send to each with numbers of its own; answer how many sessions got all of it."""
        reach = messages = 0
        frames: list[Frame] | None = None
        is_stored = self._recording.is_on
        level = min(runs[0].shape.qos, form.qos)
        for session in members:
            was_flowing = session.is_flowing
            if was_flowing and frames is None:
                frames = form.frames(runs, now)
            inflight = session.inflight
            if inflight is None:
                inflight = self._lagging.window(session)
            if was_flowing and frames is not None and inflight.room >= len(frames):
                parts = session.parts
                if not parts:
                    dirty.append(session)
                first = inflight.add_all(frames, form, level, parts)
                messages += len(frames)
                reach += 1
                if is_stored:
                    self._leaving.note(session, first, level)
            else:
                self._keeping.hold_all(session, runs, form, members[session])
                if was_flowing:  # its window is too small for all of this at once
                    self._lagging.wake(session)
        if messages:
            self._delivered_at[way_out(runs[0].shape, session.door)] += messages
        if form.limit_bytes:
            self._note_oversize(form, members, runs, now)
        return reach

    def _deliver_to_others(
        self, form: Form, members: Members, runs: list[Run], now: float, dirty: list[Session]
    ) -> int:
        """No Local: members get everything but their own. Only those who are senders differ from the rest.

        Answers how many got everything; what the others got is counted here.
        """
        deliver = self._deliver_numbered if form.qos and runs[0].shape.qos else self._deliver_shared_bytes
        door, senders = runs[0].shape.door, {run.client_id for run in runs}
        own = {
            session: wanted
            for session, wanted in members.items()
            if session.client_id in senders and session.door is door
        }
        reach = deliver(form, Others(members, own), runs, now, dirty)
        for session, subscription in own.items():
            others = [run for run in runs if run.client_id != session.client_id]
            if others and deliver(form, {session: subscription}, others, now, dirty):
                self._tallies.add(others)
                self._has_given = True
        return reach

    def _deliver_to_one(self, group: SharedGroup, run: Run, now: float, dirty: list[Session]) -> None:
        """A shared group: each message to one member that can take it, behind what the group is owed."""
        for index in range(run.count):
            session = None if group.owed else group.choose()
            if session is None:
                self._keeping.owe_group(group, run.part(index, run.count - index))
                return
            self._give(group, session, run.part(index, 1), now, dirty)

    def _give(
        self, group: SharedGroup, session: Session, message: Run, now: float, dirty: list[Session]
    ) -> None:
        subscription = group.members[session]
        form = subscription.form
        is_numbered = message.shape.qos and form.qos
        deliver = self._deliver_numbered if is_numbered else self._deliver_shared_bytes
        if deliver(form, {session: subscription}, [message], now, dirty):
            self._tallies.add_one(message)
            self._has_given = True

    def _note_oversize(self, form: Form, members: Iterable[Session], runs: Sequence[Run], now: float) -> None:
        """Record what was left out for those who got the rest; the others are told of when theirs leaves."""
        reached = [session for session in members if session.is_flowing]
        is_numbered = bool(form.qos and runs[0].shape.qos)  # then only what left was counted
        for run in form.oversize(runs, now) if reached else ():
            if not is_numbered:
                self._delivered_at[way_out(run.shape, reached[0].door)] -= run.count * len(reached)
            for session in reached:
                self._ledger.add(run, session.client_id, Reason.PACKET_TOO_LARGE)
            self._tallies.add((run,), -len(reached))

    def serve_groups(self, session: Session) -> None:
        """Serve the shared groups of a session: it came, went, or caught up."""
        for group in list(session.groups or ()):
            self.serve_group(group)

    def serve_group(self, group: SharedGroup) -> None:
        """Hand out what a shared group is owed, as far as someone keeps up; the rest stays owed."""
        while group.owed and self._serve_chunk(group):
            pass

    def _serve_chunk(self, group: SharedGroup) -> bool:
        """Hand out about a chunk, so that full sockets are noticed; False if nobody keeps up any more."""
        now = self._clock.monotonic()
        dirty: list[Session] = []
        size, is_stuck = 0, False
        while group.owed and size < CHUNK_BYTES and not is_stuck:
            ((run, form),) = group.owed.take(0)
            size += len(run.slab)
            if NEVER < run.expires_at <= now:
                self._ledger.add(run, group.filter, Reason.EXPIRED)
                given = run.count
            else:
                given = self._hand_out(group, run, now, dirty)
            if given < run.count:
                group.owed.add_first(run.part(given, run.count - given), form)
                is_stuck = True
            else:
                group.forget((run,))
        self._recording.touch_group(group)
        self._write(dirty)
        return not is_stuck

    def _hand_out(self, group: SharedGroup, run: Run, now: float, dirty: list[Session]) -> int:
        """Give the messages of a run to members that keep up; answer how many were given."""
        for index in range(run.count):
            session = group.choose()
            if session is None:
                return index
            self._give(group, session, run.part(index, 1), now, dirty)
        return run.count


def _count(runs: list[Run]) -> int:
    """How many messages there are in runs of rising offsets, without looking at each if they are single."""
    span = runs[-1].offset + runs[-1].count - runs[0].offset
    return span if span == len(runs) else sum(map(_count_of, runs))
