"""Those who are not on the fast path: away, slow, or still catching up.

What they cannot get now is kept for them by `keeping.py`. `drain` brings them back: first what waits in the
outbox, then what is owed, then retained values, then the fast path again.
"""

from collections.abc import Callable, Sequence
from itertools import groupby

from penstock.core.backlog import take_from
from penstock.core.clock import Clock, Scheduler
from penstock.core.counters import Counters, way_out
from penstock.core.fetching import Fetching
from penstock.core.inflight import Inflight
from penstock.core.keeping import Keeping
from penstock.core.leaving import Leaving
from penstock.core.ledger import Ledger
from penstock.core.outbox import Entry
from penstock.core.owed import StoredOwed
from penstock.core.ports import Form
from penstock.core.recording import Recording
from penstock.core.sessions import Session
from penstock.core.shared import SharedGroup
from penstock.core.strain import note_loss
from penstock.core.tallies import Tallies
from penstock.model import NEVER, Policy, Reason, Run, Shape

CHUNK_BYTES = 64 * 1024
TURN_BYTES = 4 * CHUNK_BYTES
"""How much one session may drain in one turn of the loop before others have theirs."""
TURN_STEPS = 500
"""How many retained values are looked at for one session in one turn."""


class Lagging:
    """Gets to sessions what was kept for them."""

    def __init__(
        self,
        clock: Clock,
        scheduler: Scheduler,
        ledger: Ledger,
        counters: Counters,
        tallies: Tallies,
        recording: Recording,
        keeping: Keeping,
        leaving: Leaving,
        fetching: Fetching,
    ) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._ledger = ledger
        self._counters = counters
        self._tallies = tallies
        self._recording = recording
        self._keeping = keeping
        self._slow = keeping.slow
        self._leaving = leaving
        self._fetching = fetching
        leaving.on_left = fetching.on_fetched = self.drain
        leaving.on_unsent = self._take_back
        self._ready: dict[Session, None] = {}  # will drain in the next turn
        self.on_caught_up: Callable[[Session], None] = lambda session: None

    def window(self, session: Session) -> Inflight:
        """A session's window of deliveries that wait for their acknowledgement."""
        if session.inflight is None:
            session.inflight = Inflight(session.window_limit, session.moves)
        return session.inflight

    def wake(self, session: Session) -> None:
        """Something changed for a session that waits: drain it in the next turn."""
        if session not in self._ready:
            if not self._ready:
                self._scheduler.call_soon(self._drain_ready)
            self._ready[session] = None

    def _drain_ready(self) -> None:
        ready, self._ready = self._ready, {}
        for session in ready:
            self.drain(session)

    def drain(self, session: Session) -> None:
        """Send what waits, as much as the socket takes; then the session is on the fast path again."""
        if session.position is not None:
            self._recording.touch(session)
        self._send_waiting(session)
        if session.groups and (session.is_flowing or session.credit):
            self.on_caught_up(session)
        if session.joins is not None and session.keeps_up:
            session.joins.go_on()

    def drain_credited(self) -> None:
        """Send what those who count have given credit for; all of it, as on the fast path."""
        credited, self._keeping.credited = self._keeping.credited, {}
        now = self._clock.monotonic()
        for session, entries in credited.items():
            if session.credit is not None:  # it is taken again from what leaves
                session.credit += sum(run.count for run, _ in entries)
            if session.can_take:
                self.send(session, entries, now)
            else:
                self._keeping.put_first(session, entries)
            self._let_go(session)
            self._watch(session)
            if session.joins is not None:
                self.wake(session)  # not now: a flush is no time to read

    def grant(self, session: Session, messages: int) -> None:
        """A session takes so many messages more than it said before; with the first it begins to count."""
        session.credit = (session.credit or 0) + messages
        session.is_flowing = False
        self.drain(session)

    def _send_waiting(self, session: Session) -> None:
        budget, steps = TURN_BYTES, TURN_STEPS
        now = self._clock.monotonic()
        while session.can_take and session.credit != 0:
            if budget <= 0 or steps <= 0:
                self.wake(session)
                break
            entries, steps = self._next_entries(session, steps, now)
            if entries:
                sent, is_blocked = self.send(session, entries, now)
                budget -= sent
                if is_blocked:
                    break
            elif not session.is_waiting:
                if session.backlog is not None:
                    session.backlog = None
                    self._recording.save(session)
                session.is_flowing = session.credit is None
                break
        self._let_go(session)
        self._watch(session)

    def _watch(self, session: Session) -> None:
        """See whether a session lags behind now."""
        is_watched = session in self._slow.watched
        if session.keeps_up:
            self._slow.forget(session)
        elif not is_watched and session.sink is not None and session.is_waiting:
            policies = (wanted.policy for wanted in session.subscriptions.values())
            self._slow.watch(session, next(policies, Policy.DROP_NEWEST))

    def _let_go(self, session: Session) -> None:
        holding = self._keeping.holding
        if holding.is_awaited(session) and not (session.outbox and session.outbox.is_over):
            holding.release(session)

    def _next_entries(self, session: Session, steps: int, now: float) -> tuple[list[Entry], int]:
        """What leaves next, and how many of the steps are left."""
        if session.outbox:
            return session.outbox.take(CHUNK_BYTES), steps
        owed = session.owed
        if isinstance(owed, StoredOwed) and owed.stored and not owed.messages:
            self._fetching.fetch(session, owed)
            return [], steps
        if owed:
            return owed.take(CHUNK_BYTES), steps
        if session.backlog:
            return take_from(session.backlog, CHUNK_BYTES, steps, now)
        return [], steps

    def send(self, session: Session, entries: Sequence[Entry], now: float) -> tuple[int, bool]:
        """Send entries in order; answer the bytes sent and whether window or credit stopped it."""
        parts: list[bytes] = []
        rest: list[Entry] = []
        for (form, shape), stretch in groupby(entries, _form_and_shape):
            if rest:
                rest += stretch
                continue
            runs = self._alive(session, [run for run, _ in stretch], now)
            if shape.qos and form.qos:
                rest += [(run, form) for run in self._number(session, runs, form, now, parts)]
                continue
            if session.credit is not None:
                runs, over = split(runs, session.credit)
                session.credit -= _count(runs)
                rest += [(run, form) for run in over]
            if runs:
                parts.append(form.encode(runs, now))
                self._tallies.add(runs)
                lost = self._note_oversize(session, runs, form, now)
                self._counters.delivered_at[way_out(shape, session.door)] += _count(runs) - lost
        self._keeping.put_first(session, rest)
        data = b"".join(parts)
        if data:
            self._leaving.write(session, data)
        return len(data), bool(rest)

    def _alive(self, session: Session, runs: list[Run], now: float) -> list[Run]:
        """The runs that have not expired; the others are recorded."""
        expired = [run for run in runs if NEVER < run.expires_at <= now]
        for run in expired:
            self._ledger.add(run, session.client_id, Reason.EXPIRED)
            note_loss(session, Reason.EXPIRED, run.count)
        return [run for run in runs if not NEVER < run.expires_at <= now] if expired else runs

    def _number(
        self, session: Session, runs: list[Run], form: Form, now: float, parts: list[bytes]
    ) -> list[Run]:
        """Send as many messages of runs of one shape as the window takes; answer the rest."""
        inflight = self.window(session)
        while runs and (room := inflight.room):
            leaving, runs = split(runs, room)
            level = min(leaving[0].shape.qos, form.qos)
            frames = form.frames(leaving, now)
            first = inflight.add_all(frames, form, level, parts)
            if self._recording.is_on:
                self._leaving.note(session, first, level)
            self._counters.delivered_at[way_out(leaving[0].shape, session.door)] += len(frames)
            self._tallies.add(leaving)
            self._note_oversize(session, leaving, form, now)  # these take no room in the window
        return runs

    def _note_oversize(self, session: Session, runs: list[Run], form: Form, now: float) -> int:
        """Record what was left out; answer how many messages that were."""
        lost = form.oversize(runs, now) if form.limit_bytes else []
        for part in lost:
            self._ledger.add(part, session.client_id, Reason.PACKET_TOO_LARGE)
        self._tallies.add(lost, -1)
        return sum(part.count for part in lost)

    def _take_back(self, session: Session, entries: Sequence[Entry]) -> None:
        """What had a number already could not leave: it waits again, here or for the others of its group."""
        self._keeping.put_first(session, self._keeping.offer_again(entries))
        self._recording.touch(session)
        self.on_caught_up(session)

    def detach(self, session: Session) -> list[SharedGroup]:
        """A session lost its connection. Answers the groups whose other members may now get something."""
        session.is_coming = session.is_flowing = session.is_paused = session.is_fetching = False
        session.parts.clear()
        if session.joins is not None:
            session.joins.stop()
        for group in session.groups or ():
            group.depart(session)
        self._ready.pop(session, None)
        self._slow.forget(session)
        groups = self._keeping.owe_rest(session)
        session.gate = 0
        return groups

    def reap(self, now: float) -> None:
        """Take out of every queue what has expired."""
        for session in self._keeping.reap(now):
            if session.sink is not None and not session.is_flowing:
                self.wake(session)  # perhaps nothing waits any more
        self._slow.reap(now)


def _form_and_shape(entry: Entry) -> tuple[Form, Shape]:
    return entry[1], entry[0].shape


def _count(runs: list[Run]) -> int:
    return sum(run.count for run in runs)


def split(runs: list[Run], room: int) -> tuple[list[Run], list[Run]]:
    """As many messages as there is room for, and the rest; a run may be cut."""
    for position, run in enumerate(runs):
        if run.count > room:
            cut = [run.part(0, room)] if room else []
            return runs[:position] + cut, [run.part(room, run.count - room), *runs[position + 1 :]]
        room -= run.count
    return runs, []
