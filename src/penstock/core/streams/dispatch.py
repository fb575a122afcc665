"""Dispatch of messages to competing receivers, first come, first served on both sides.

Messages arrive while they are being published, when no callback may run. Those of other doors are handed over
at the end of the turn, those sent to the stream right after their publish. A message that is stored is handed
over after its commit, and later ones wait behind it, so the order stays.
"""

from collections import OrderedDict, deque

from penstock.core.node import Node
from penstock.core.publishing.idempotent import IdempotentPublisher
from penstock.core.publishing.outcome import Receipt
from penstock.core.publishing.publish import Publisher, raise_it
from penstock.core.runtime.deadlines import Timeouts
from penstock.core.sessions.session import Session
from penstock.core.streams.buffers import StreamBuffers
from penstock.core.streams.counters import StreamCounters
from penstock.core.streams.stream import DOOR, Stream, weight_of
from penstock.core.streams.waiters import Handover, Receiver, Sender, Take, Waiter, Watching
from penstock.errors import PenstockError
from penstock.model import Reason
from penstock.runs import Run


class Dispatch:
    """The lines at all streams, and what moves them on."""

    def __init__(
        self,
        node: Node,
        publishing: Publisher,
        accepting: IdempotentPublisher,
        buffers: StreamBuffers,
        counters: StreamCounters,
        timeouts: Timeouts[Waiter],
        watching: Watching,
    ) -> None:
        self._clock, self._tick, self._log = node.clock, node.tick, node.log
        self._node_counters = node.counters
        self._publishing = publishing
        self._accepting = accepting
        self._buffers = buffers
        self._counters = counters
        self._timeouts = timeouts
        self._watching = watching
        self._arrived: dict[Stream, None] = {}  # something of another door came in during this turn
        self._gates: dict[Stream, deque[int]] = {}  # offsets of what is handed over after its commit
        self._is_sending = False  # what is being published is sent to a stream
        self._is_storing = False  # and not handed over before its commit

    # Coming in

    def publish(self, stream: Stream, run: Run, caller: Session) -> Receipt:
        """Publish what was sent to a stream, and hand it to a waiting receiver."""
        self._is_sending = True
        try:
            ticket = self._publishing.publish_all((run,), caller, raise_it).ticket
        finally:
            self._is_sending = False
        self._counters.sends += 1
        receipt = self._accepting.receipt_of(run, stream.topic, ticket)
        if stream.receivers:
            self._serve(stream)
        return receipt

    def store(self, run: Run, caller: Session, known_as: str | None) -> Receipt:
        """Publish what goes into the log first; `release` follows when its commit is over."""
        self._is_storing = True
        try:
            return self._accepting.publish_once(run, caller, is_forced=True, known_as=known_as)
        finally:
            self._is_storing = False

    def on_published(self, stream: Stream, run: Run) -> None:
        """Enter a run of the stream's topic. No callback may run here."""
        if stream.watchers:
            self._watching.on_published(stream, is_forced=self._is_storing)
        if not stream.is_open:
            return
        if self._is_sending:
            self._buffers.put(stream, run)
            return
        if self._is_storing:
            self._gates.setdefault(stream, deque()).append(run.offset)
        if not self._arrived:
            self._tick.after(self._on_turn_end)
        self._arrived[stream] = None
        for index in range(run.count):
            self._buffers.put(stream, run.part(index, 1))
            self._buffers.trim(stream)

    def _on_turn_end(self) -> None:
        arrived, self._arrived = self._arrived, {}
        for stream in arrived:
            self.move_on(stream)

    def release(self, stream: Stream, offset: int, *, is_stored: bool) -> None:
        """Hand over a message after its commit, or drop it if the commit failed."""
        gate = self._gates.get(stream)
        if gate is None or offset not in gate:
            return
        gate.remove(offset)
        if not gate:
            del self._gates[stream]
        if not is_stored:
            self._buffers.remove(stream, lambda run: run.offset == offset, Reason.NEVER_STORED)
        self.move_on(stream)

    def _is_gated(self, stream: Stream) -> bool:
        """The next message waits for its commit, and those behind it with it."""
        gate = self._gates.get(stream)
        return gate is not None and stream.first.offset >= gate[0]

    def forget(self, stream: Stream) -> None:
        """A stream is over: nothing of it is handed over any more."""
        self._gates.pop(stream, None)

    # Handing over

    def move_on(self, stream: Stream) -> None:
        """Match waiters and messages after a change."""
        self._serve(stream)
        self._buffers.trim(stream)
        self.let_in(stream)

    def give_now(self, stream: Stream, take: Take, now: float) -> bool:
        """Hand the next message to a receiver that has just come; False if it has to stand in line."""
        if not stream.count or stream.receivers or self._is_gated(stream):
            return False
        run = self._buffers.take(stream, now)
        if run is None:
            return False
        stream.used_at = now
        if self._hand_over(stream, run, take):
            self._counters.note_receive_at_once()
        self.let_in(stream)
        return True

    def _serve(self, stream: Stream) -> None:
        """Hand messages to waiting receivers."""
        while stream.receivers and stream.count and not self._is_gated(stream):
            now = self._clock.monotonic()
            run = self._buffers.take(stream, now)
            if run is None:
                break
            receiver = next(iter(stream.receivers))
            self.leave(receiver)
            if self._hand_over(stream, run, receiver.take):
                self._counters.note_receive(now - receiver.since)

    def _hand_over(self, stream: Stream, run: Run, take: Take) -> bool:
        """Give a message to a receiver; if that has gone, the message is the first again."""
        is_taken = False
        try:
            is_taken = take(Handover(run, self._log.epoch))
        finally:
            if not is_taken:
                self._buffers.put_back(stream, run)
                self._counters.given_back += 1
        if is_taken:
            stream.topic.delivered += 1
            self._node_counters.delivered_at[DOOR] += 1
        return is_taken

    # Waiters

    def line_up(self, receiver: Receiver) -> None:
        """Add a waiting receiver; a sender that waits for one is released."""
        stream = receiver.stream
        if stream.receivers is None:
            stream.receivers = OrderedDict()
        stream.receivers[receiver] = None
        self._counters.receivers_waiting += 1
        if stream.senders:
            self.let_in(stream)

    def leave(self, receiver: Receiver) -> bool:
        """A receiver waits no more; False if it did not."""
        stream = receiver.stream
        if stream.receivers is None or receiver not in stream.receivers:
            return False
        del stream.receivers[receiver]
        if not stream.receivers:
            stream.receivers = None
        stream.used_at = self._clock.monotonic()
        self._counters.receivers_waiting -= 1
        self._timeouts.discard(receiver)
        return True

    def line_up_sender(self, sender: Sender) -> None:
        """A message waits for room, or for a receiver."""
        stream = sender.stream
        if stream.senders is None:
            stream.senders = OrderedDict()
        stream.senders[sender] = None
        self._counters.senders_waiting += 1

    def leave_sender(self, sender: Sender) -> bool:
        """A message waits no more; False if it did not."""
        stream = sender.stream
        if stream.senders is None or sender not in stream.senders:
            return False
        del stream.senders[sender]
        if not stream.senders:
            stream.senders = None
        stream.used_at = self._clock.monotonic()
        self._counters.senders_waiting -= 1
        self._timeouts.discard(sender)
        return True

    def give_up_sender(self, sender: Sender) -> bool:
        """The same, if its message is not to be published; a smaller one behind it may have room."""
        is_left = self.leave_sender(sender)
        if is_left:
            self.let_in(sender.stream)
        return is_left

    def can_take(self, stream: Stream, run: Run) -> bool:
        """A message need not wait: it may stay in the stream, or is handed over at once."""
        if self._buffers.has_room(stream, weight_of(run)):
            return True
        return not stream.count and self._is_awaited(stream)

    def _is_awaited(self, stream: Stream) -> bool:
        """Return whether a present receiver waits; absent ones before it leave the queue."""
        while stream.receivers:
            first = next(iter(stream.receivers))
            if first.is_here():
                return True
            self.leave(first)
        return False

    def let_in(self, stream: Stream) -> None:
        """Publish what waits for room, as far as there is some."""
        while stream.senders and stream.is_attached:
            sender = next(iter(stream.senders))
            if not self.can_take(stream, sender.run):
                break
            self.leave_sender(sender)
            outcome: Receipt | PenstockError
            try:
                outcome = self.publish(stream, sender.run, sender.caller)
                self._counters.note_send(self._clock.monotonic() - sender.since)
            except PenstockError as error:
                outcome = error
            sender.done(outcome)
