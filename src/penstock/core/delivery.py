"""From a stretch to its subscribers: the fast path.

Bytes are encoded once per class and added to each member; every member then gets one write. A member
that is away, slow, or still catching up is left to `lagging.py`.
"""

from collections.abc import Iterable, Sequence
from operator import attrgetter

from penstock.core.audience import Members
from penstock.core.clock import Clock
from penstock.core.counters import Counters
from penstock.core.inflight import Pending
from penstock.core.lagging import CHUNK_BYTES, Lagging
from penstock.core.ledger import Ledger
from penstock.core.ports import Form, Frame
from penstock.core.sessions import Session
from penstock.core.shared import SharedGroup
from penstock.core.tick import Stretch
from penstock.model import NEVER, Reason, Run

_count_of = attrgetter("count")


class Delivery:
    """Gets a turn's stretches to everyone who keeps up."""

    def __init__(self, clock: Clock, ledger: Ledger, counters: Counters, lagging: Lagging) -> None:
        self._clock = clock
        self._ledger = ledger
        self._counters = counters
        self._lagging = lagging

    def deliver(self, stretches: list[Stretch]) -> None:
        """Send a turn's stretches to everyone they reach, with one write for each who keeps up."""
        now = self._clock.monotonic()
        dirty: list[Session] = []
        self._lagging.begin_turn()
        for stretch in stretches:
            runs, qos = stretch.runs, stretch.shape.qos
            for form, members in stretch.audience.classes():
                if form.no_local:
                    self._deliver_to_others(form, members, runs, now, dirty)
                elif qos and form.qos:
                    self._deliver_numbered(form, members, runs, now, dirty)
                else:
                    self._deliver_shared_bytes(form, members, runs, now, dirty)
            for group in stretch.audience.shared:
                for run in runs:
                    self._deliver_to_one(group, run, now, dirty)
        self._write(dirty)

    def _write(self, dirty: list[Session]) -> None:
        for session in dirty:
            parts = session.parts
            if session.sink is not None:
                session.sink.write(parts[0] if len(parts) == 1 else b"".join(parts))
            parts.clear()
        self._lagging.end_turn()

    def _deliver_shared_bytes(
        self, form: Form, members: Members, runs: list[Run], now: float, dirty: list[Session]
    ) -> None:
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
                self._lagging.hold_all(session, runs, form, members[session])
        if flowing:
            self._counters.delivered += flowing * _count(runs)
        if form.limit_bytes:
            self._note_oversize(form, members, runs, now)

    def _deliver_numbered(
        self, form: Form, members: Members, runs: list[Run], now: float, dirty: list[Session]
    ) -> None:
        frames: list[Frame] | None = None
        need = 0
        for session in members:
            was_flowing = session.is_flowing
            if was_flowing and frames is None:
                frames = form.frames(runs, now)
                need = len(frames)
            if (
                frames is not None
                and was_flowing
                and (inflight := self._lagging.window(session)).room >= need
            ):
                parts = session.parts
                if not parts:
                    dirty.append(session)
                for before, after, run in frames:
                    number = inflight.add(Pending(run, form, min(run.shape.qos, form.qos)))
                    parts += (before, number.to_bytes(2, "big"), after)
                self._counters.delivered += need
            else:
                self._lagging.hold_all(session, runs, form, members[session])
                if was_flowing:  # its window is too small for all of this at once
                    self._lagging.wake(session)
        if form.limit_bytes:
            self._note_oversize(form, members, runs, now)

    def _deliver_to_others(
        self, form: Form, members: Members, runs: list[Run], now: float, dirty: list[Session]
    ) -> None:
        """No Local: members get everything but their own."""
        for session, subscription in members.items():
            others = [run for run in runs if run.client_id != session.client_id]
            if others:
                one = {session: subscription}
                if others[0].shape.qos and form.qos:
                    self._deliver_numbered(form, one, others, now, dirty)
                else:
                    self._deliver_shared_bytes(form, one, others, now, dirty)

    def _deliver_to_one(self, group: SharedGroup, run: Run, now: float, dirty: list[Session]) -> None:
        """A shared group: each message to one member."""
        for index in range(run.count):
            message = run.part(index, 1)
            session = group.choose()
            if session is None:
                self._lagging.owe_group(group, message)
                continue
            subscription = group.members[session]
            form = subscription.form
            one = {session: subscription}
            if message.shape.qos and form.qos:
                self._deliver_numbered(form, one, [message], now, dirty)
            else:
                self._deliver_shared_bytes(form, one, [message], now, dirty)

    def _note_oversize(self, form: Form, members: Iterable[Session], runs: Sequence[Run], now: float) -> None:
        """Record what was left out for those who got the rest; the others are told of when theirs leaves."""
        reached = [session for session in members if session.is_flowing]
        for run in form.oversize(runs, now) if reached else ():
            for session in reached:
                self._ledger.add(run, session.client_id, Reason.PACKET_TOO_LARGE)

    def serve_group(self, group: SharedGroup) -> None:
        """Hand out what a shared group is owed, as far as someone is there to take it."""
        while group.owed and group.is_attended:
            dirty: list[Session] = []
            now = self._clock.monotonic()
            for run, _ in group.owed.take(CHUNK_BYTES):
                if NEVER < run.expires_at <= now:
                    self._ledger.add(run, group.name, Reason.EXPIRED)
                else:
                    self._deliver_to_one(group, run, now, dirty)
            self._write(dirty)


def _count(runs: list[Run]) -> int:
    """How many messages there are in runs of rising offsets, without looking at each if they are single."""
    span = runs[-1].offset + runs[-1].count - runs[0].offset
    return span if span == len(runs) else sum(map(_count_of, runs))
