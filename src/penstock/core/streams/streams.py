"""Streams: topics whose messages go to one receiver each.

A stream is a topic with its own queue, made by the first send or receive. A send is accepted once there is
room or a receiver; at that moment it is published, with a sequence, a place in the log, and for all
subscribers of the topic. A send that times out was never published. Publishes of other doors enter the queue
too, and a full queue evicts its oldest message. A receiver that is gone when its message arrives returns it
to the front.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

import structlog

from penstock.common.topics import check_topic
from penstock.core.access.identity import Identity
from penstock.core.node import Node
from penstock.core.publishing.idempotent import IdempotentPublisher
from penstock.core.publishing.outcome import Receipt
from penstock.core.publishing.publish import Publisher
from penstock.core.runtime.deadlines import Timeouts
from penstock.core.sessions.session import Session
from penstock.core.settings import StreamSettings
from penstock.core.streams.buffers import StreamBuffers
from penstock.core.streams.counters import StreamCounters
from penstock.core.streams.dispatch import Dispatch
from penstock.core.streams.send_request import Sending
from penstock.core.streams.stream import DOOR, Stream, stream_of, weight_of
from penstock.core.streams.waiters import (
    Done,
    IsHere,
    Missed,
    PendingSend,
    Receiver,
    Sender,
    Take,
    Wait,
    Waiter,
    Watching,
)
from penstock.core.topics.topic import Topic
from penstock.errors import (
    InvalidRequest,
    NotAuthorized,
    PenstockError,
    QuotaExceeded,
    ShuttingDown,
    StorageUnavailable,
    TooLarge,
    WaitTimeout,
)
from penstock.model import Reason
from penstock.runs import Run

log = structlog.get_logger("penstock.streams")

STOPPING = "Server is shutting down"
"""Error for new and waiting requests while the server stops."""
ROUND = 120
"""Passes in which every stream is examined once for idleness."""
LOOKED_AT = 1_000
"""Least number of streams that one pass examines."""
RIGHTS_REMEMBERED = 10_000
"""Most remembered rights to receive."""


class Streams:
    """All streams of a node."""

    def __init__(self, node: Node, publishing: Publisher, accepting: IdempotentPublisher) -> None:
        self._node = node
        self._publishing = publishing
        self._accepting = accepting
        self._settings = node.settings.streams
        self._topics, self._clock, self._request_senders = node.topics, node.clock, node.request_senders
        self._all: deque[Stream] = deque()  # each once; whose turn it is to be looked at comes first
        self._allowed: set[tuple[Identity, str]] = set()  # who may receive from which topic
        self.is_draining = False
        self.buffers = StreamBuffers(self._settings, node.ledger)
        self.counters = StreamCounters()
        self._timeouts: Timeouts[Waiter] = Timeouts(node.clock, node.scheduler, self._on_due)
        self._watching = Watching(node.log, publishing.when_committed)
        self._dispatch = Dispatch(
            node, publishing, accepting, self.buffers, self.counters, self._timeouts, self._watching
        )
        node.topics.notify_deleted(self._on_deleted)

    def __len__(self) -> int:
        return len(self._all)

    def __bool__(self) -> bool:
        return bool(self._all)

    def configure(self, settings: StreamSettings) -> None:
        """Keep more or less from now on, and wait for longer or shorter."""
        self._settings = settings
        self.buffers.configure(settings)

    # Sending

    def send(self, sending: Sending, done: Done) -> Wait | None:
        """Publish a message as soon as its stream takes it; call back with its receipt, or with why not.

        Where that is decided at once, it is called back before this returns, and None is returned.
        """
        caller = self._request_senders.of(sending.identity, DOOR)
        if self._request_senders.is_free(caller):
            return self._send(sending, caller, done)
        pending = PendingSend(done)  # a slow subscriber under `block` holds it back
        self._request_senders.when_unblocked(caller, partial(self._send_late, sending, caller, pending))
        return pending

    def _send_late(self, sending: Sending, caller: Session, pending: PendingSend) -> None:
        if not pending.is_cancelled:
            pending.inner = self._send(sending, caller, pending.finish)

    def _send(self, sending: Sending, caller: Session, done: Done) -> Wait | None:
        outcome: Receipt | PenstockError
        try:
            self.check_open()
            run = sending.run
            if sending.is_stored:
                return self._store(run, caller, done, sending.known_as)
            size = self._check_size(sending)
            topic = self._accepting.check(run, caller)
            self._check_weight(stream_of(topic), weight_of(run), may_wait=sending.wait_s > 0)
            stream = self._open(topic)
            stream.size = size
            if sending.wait_s <= 0:
                outcome = self._dispatch.publish(stream, run, caller)
                self.buffers.trim(stream)
            elif stream.senders or not self._dispatch.can_take(stream, run):
                return self._wait_for_room(stream, run, caller, done, sending.wait_s)
            else:
                outcome = self._dispatch.publish(stream, run, caller)
            self.counters.note_send_at_once()
        except PenstockError as error:
            outcome = error
        done(outcome)
        return None

    def check_open(self) -> None:
        """Refuse what comes when the server is about to stop."""
        if self.is_draining:
            raise ShuttingDown(STOPPING)

    def _check_size(self, sending: Sending) -> int:
        """Return the buffer size; refuse a send that could neither be kept nor wait."""
        size, max_size = sending.capacity, self._settings.max_size
        if size is None:
            size = self._settings.default_size
        elif not 0 <= size <= max_size:
            raise InvalidRequest(f"a stream keeps 0 to {max_size} messages, not {size}")
        known = self._find(sending.topic)
        if known is not None and known.size is not None:
            size = known.size
        if not size and sending.wait_s <= 0:
            raise InvalidRequest("a stream that keeps no messages takes one only if it waits for a receiver")
        return size

    def _check_weight(self, stream: Stream | None, weight: int, *, may_wait: bool) -> None:
        """Refuse a message that its stream could not keep, or not now if it does not wait."""
        limit_bytes = self._settings.stream_bytes
        if weight > limit_bytes:
            raise TooLarge(f"a stream keeps {limit_bytes} bytes, and this message takes {weight} of them")
        is_awaited = stream is not None and stream.receivers is not None
        if not (may_wait or is_awaited or self.buffers.could_have_room(stream, weight)):
            raise QuotaExceeded(f"all streams together keep {self.buffers.bytes} bytes already")

    def _open(self, topic: Topic) -> Stream:
        """Return the stream of a topic, made if it is new."""
        stream = stream_of(topic) or self._make(topic)
        stream.is_open = True
        stream.used_at = self._clock.monotonic()
        return stream

    def _wait_for_room(self, stream: Stream, run: Run, caller: Session, done: Done, wait_s: float) -> Wait:
        if self._is_crowded:
            raise self._too_many()
        now = stream.used_at
        sender = Sender(stream, run, caller, done, now, self._dispatch.give_up_sender)
        self._dispatch.line_up_sender(sender)
        self._timeouts.add(sender, now + min(wait_s, self._settings.max_timeout_s))
        return sender

    def _store(self, run: Run, caller: Session, done: Done, known_as: str | None) -> Wait:
        """Publish a message that goes into the log; a stream that is there gets it after its commit."""
        if not self._node.log.is_durable:
            raise InvalidRequest("nothing is stored here: this server has no data directory")
        pending, receipt = PendingSend(done), self._dispatch.store(run, caller, known_as)
        self._publishing.when_committed(receipt.ticket, partial(self._on_stored, receipt, pending))
        return pending

    def _on_stored(self, receipt: Receipt, pending: PendingSend, failure: Exception | None) -> None:
        stream = self._find(receipt.topic)
        if not receipt.is_duplicate:
            self.counters.sends += failure is None
            if stream is not None:
                self._dispatch.release(stream, receipt.offset, is_stored=failure is None)
        pending.finish(receipt if failure is None else StorageUnavailable(str(failure)))

    # Receiving

    def receive(
        self,
        topic: str,
        identity: Identity,
        wait_s: float,
        take: Take,
        missed: Missed,
        is_here: IsHere = lambda: True,
    ) -> Wait | None:
        """Hand the next message of a stream to a receiver, now or as soon as there is one.

        Where that is decided at once, it is called before this returns, and None is returned. A receiver
        that has gone is not called, and neither is one that does not take what it is given.
        """
        try:
            self.check_open()
            self._check_right(identity, topic)
            stream, now = self._find(topic), self._clock.monotonic()
            if stream is not None and self._dispatch.give_now(stream, take, now):
                return None
            if stream is None:
                stream = self._expect(topic, wait_s)
            receiver = Receiver(stream, identity, take, missed, is_here, now, self._dispatch.leave)
            self._dispatch.line_up(receiver)
            if stream.receivers is None or receiver not in stream.receivers:
                return None
            if wait_s > 0 and not self._is_crowded:
                self._timeouts.add(receiver, now + min(wait_s, self._settings.max_timeout_s))
                return receiver
            self._dispatch.leave(receiver)
            raise self._miss_now() if wait_s <= 0 else self._too_many()
        except PenstockError as error:
            missed(error)
        return None

    def _expect(self, name: str, wait_s: float) -> Stream:
        """Make a stream for a receiver that waits for the first message."""
        if wait_s <= 0:
            raise self._miss_now()
        if self._is_crowded:
            raise self._too_many()
        return self._open(self._topics.expect(name))

    def _miss_now(self) -> WaitTimeout:
        self.counters.receive_timeouts += 1
        return WaitTimeout("nothing is there")

    def _check_right(self, identity: Identity, topic: str) -> None:
        key = (identity, topic)
        if key in self._allowed:
            return
        check_topic(topic, self._node.settings.topic)
        if not self._node.access.may_subscribe(identity, topic):
            raise NotAuthorized(f"not allowed to receive from {topic}")
        if len(self._allowed) >= RIGHTS_REMEMBERED:
            self._allowed.clear()
        self._allowed.add(key)

    @property
    def _waiting(self) -> int:
        return len(self._timeouts) + len(self._watching)

    @property
    def _is_crowded(self) -> bool:
        return self._waiting >= self._settings.max_waiting

    def _too_many(self) -> QuotaExceeded:
        return QuotaExceeded(f"{self._waiting} sends and receives wait already")

    def _find(self, name: str) -> Stream | None:
        topic = self._topics.find(name)
        stream = stream_of(topic)
        return stream if stream is not None and stream.is_open else None

    def _make(self, topic: Topic) -> Stream:
        if len(self._all) >= self._settings.max_streams:
            self._topics.expected.pop(topic.name, None)
            raise QuotaExceeded(f"there are {len(self._all)} streams already")
        stream = topic.stream = Stream(topic, self._clock.monotonic(), self._dispatch.on_published)
        self._all.append(stream)
        return stream

    # Watching

    def when_published(self, topic: str, woken: Callable[[], None]) -> Wait:
        """Call back once when there is something new on a topic that can be read, or the server is draining.

        Raises:
            PenstockError: the topic is invalid, or too many wait already.
        """
        check_topic(topic, self._node.settings.topic)
        if self._is_crowded:
            raise self._too_many()
        known = self._topics.expect(topic)
        watcher = self._watching.add(stream_of(known) or self._make(known), woken)
        if self.is_draining:
            watcher.cancel()
            woken()
        return watcher

    # Waiting in vain

    def _on_due(self, who: Waiter) -> None:
        if isinstance(who, Receiver):
            self.counters.receive_timeouts += 1
            self._miss(who, WaitTimeout("nothing came in time"))
        else:
            self.counters.send_timeouts += 1
            self._miss(who, WaitTimeout("there was no room in time"))
            self._dispatch.let_in(who.stream)

    def _miss(self, who: Waiter, error: PenstockError) -> None:
        """End a wait; idempotent."""
        if isinstance(who, Receiver) and self._dispatch.leave(who):
            who.missed(error)
        elif isinstance(who, Sender) and self._dispatch.leave_sender(who):
            who.done(error)

    def drain(self) -> None:
        """Refuse new requests and release all waiters."""
        self.is_draining = True
        for who in self._timeouts:
            self._miss(who, ShuttingDown(STOPPING))
        for stream in list(self._all):
            if stream.watchers:
                self._watching.wake(stream)

    def reconsider(self) -> None:
        """Release waiters that may no longer receive or send: the rules have changed."""
        self._allowed.clear()
        access = self._node.access
        for who in self._timeouts:
            if isinstance(who, Receiver):
                identity, is_allowed = who.identity, access.may_subscribe(who.identity, who.stream.topic.name)
            else:
                identity = who.caller.identity
                is_allowed = access.may_publish(identity, who.stream.topic.name)
            if not (is_allowed and access.is_known(identity)) or access.is_outdated(identity):
                self._miss(who, NotAuthorized("the right to this was taken away"))
                self._dispatch.let_in(who.stream)

    # Going

    def reap(self) -> None:
        """Once a second: remove expired messages and idle streams."""
        now = self._clock.monotonic()
        for stream in self.buffers.expire(now):
            self._dispatch.let_in(stream)
        if self.buffers.is_starved:
            self._feed()
        for _ in range(min(len(self._all), max(LOOKED_AT, len(self._all) // ROUND))):
            stream = self._all.popleft()
            if not stream.is_attached:
                continue
            if self._is_idle(stream, now):
                self._free(stream)
            else:
                self._all.append(stream)

    def _feed(self) -> None:
        """Other streams may have left room for what waits."""
        self.buffers.is_starved = False
        for stream in {who.stream: None for who in self._timeouts if isinstance(who, Sender)}:
            self._dispatch.let_in(stream)

    def _is_idle(self, stream: Stream, now: float) -> bool:
        """Return whether a stream is idle for long enough, longer if it has messages."""
        limit_s = self._settings.abandoned_s if stream.count else self._settings.idle_s
        return not stream.is_attended and now - stream.used_at >= limit_s

    def _free(self, stream: Stream) -> None:
        stream.topic.stream = None
        self._topics.expected.pop(stream.topic.name, None)
        self._dispatch.forget(stream)
        self.buffers.clear(stream, Reason.SESSION_ENDED)

    def _on_deleted(self, topic: Topic) -> None:
        """A topic was deleted, and its stream with it."""
        stream = stream_of(topic)
        if stream is not None:
            self._free(stream)
            self._node.scheduler.call_soon(partial(self._dismiss, stream))

    def _dismiss(self, stream: Stream) -> None:
        for who in (*(stream.receivers or ()), *(stream.senders or ())):
            self._miss(who, WaitTimeout("the topic was deleted"))
        self._watching.wake(stream)

    def close(self) -> None:
        """Record everything that was not received: the server ends."""
        streams = [stream for stream in self._all if stream.is_attached and stream.count]
        if streams:
            messages = sum(self.buffers.clear(stream, Reason.SESSION_ENDED) for stream in streams)
            log.warning("streams given up", messages=messages, streams=len(streams))
