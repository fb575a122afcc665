"""Publish in batches: each is acknowledged after its commit, in order.

A publisher that is blocked under `block` waits before it publishes more, and before its acknowledgements.
A call is not read from while too much of it waits.
"""

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from penstock.core.access.access import Access
from penstock.core.access.identity import Identity
from penstock.core.broker import Steps
from penstock.core.sessions.session import Ending, Session
from penstock.doors.sidecar.transport.method import Call, EndCause, Handler
from penstock.doors.sidecar.v1.batches import Batch
from penstock.errors import (
    BadCredentials,
    Conflict,
    InvalidRequest,
    PenstockError,
    ShuttingDown,
    StorageUnavailable,
    TooLarge,
    UnknownClient,
)
from penstock.model import Door
from penstock.net.acks_after_commit import OrderedAcks
from penstock.net.door import Peer
from penstock.wire.grpc import encode_message
from penstock.wire.sidecar.batches import BadBatch, LongBatch, read_batch

if TYPE_CHECKING:
    from penstock.doors.sidecar.v1.service import PenstockService

MAX_MESSAGES = 10_000
"""Most messages of one batch."""
STOPPING = ShuttingDown("the server is about to stop")
ENDINGS: dict[Ending, PenstockError] = {
    Ending.ADMINISTRATIVE: Conflict("disconnected by an administrator; reconnect to continue"),
    Ending.SESSION_ENDED: UnknownClient("an administrator has ended this call"),
}
UNACKNOWLEDGED_BYTES = 8 * 1024 * 1024
"""Bytes that may wait for acknowledgement before the call is not read from."""

BATCH_BYTES = 1024
"""Least size that a batch counts with."""


class PublishCall(Handler):
    """One call; its batches are published as they come."""

    __slots__ = (
        "_acknowledging",
        "_acks",
        "_call",
        "_failure",
        "_generation",
        "_has_all",
        "_is_full",
        "_is_paused",
        "_is_publishing",
        "_lane",
        "_service",
        "_unacknowledged",
        "_unacknowledged_bytes",
        "_waiting",
        "connected_at",
    )

    def __init__(self, service: "PenstockService", call: Call) -> None:
        self._service = service
        self._call = call
        self._waiting: deque[bytes] = deque()  # batches that wait, because the publisher is blocked
        self._acks = OrderedAcks(service.broker.when_committed, self._acknowledge_unblocked, Batch.roll_back)
        self._unacknowledged = 0  # batches: uncommitted, or of a blocked publisher
        self._unacknowledged_bytes = 0
        self._failure: PenstockError | None = None  # ends the call when all before it is acknowledged
        self._has_all = False  # the client sends no more
        self._is_full = False  # it does not read its acknowledgements
        self._is_paused = False
        self._is_publishing = False  # a batch that is published in steps
        self._acknowledging: deque[Batch] = deque()  # committed, and being encoded
        self._lane = f"v1-{next(service.calls)}"  # a blocked publisher does not stop other calls
        self._generation = service.broker.access.generation
        self.connected_at = service.clock.wall_us()
        service.add_publisher(self)

    # Presence in the client directory

    @property
    def identity(self) -> Identity:
        """Identity of the publisher."""
        assert self._call.identity is not None
        return self._call.identity

    @property
    def door(self) -> Door:
        """Door of the call."""
        return Door.SIDECAR

    @property
    def peer(self) -> Peer:
        """Address of the client."""
        return self._call.peer

    def close(self, reason: str) -> None:
        """Core ends it, behind the acknowledgements of what was published."""
        if self._failure is None:
            self._fail(ENDINGS[Ending(reason)])

    # The call

    def message_received(self, message: bytes) -> None:
        """Publish a batch, as soon as that may be."""
        if self._failure is not None:
            return
        self._waiting.append(message)
        self._service.broker.when_unblocked(self._sender, self._publish_next)
        self._choose_reading()

    def messages_ended(self) -> None:
        """End when everything is acknowledged."""
        self._has_all = True
        self._finish_if_done()

    def pause_writing(self) -> None:
        """The client does not read its acknowledgements: it is not read from either."""
        self._is_full = True
        self._choose_reading()

    def resume_writing(self) -> None:
        """It reads them."""
        self._is_full = False
        self._choose_reading()

    def ended(self, cause: EndCause) -> None:
        """The client has disconnected; unacknowledged messages may have been published."""
        self._waiting.clear()
        self._leave()

    @property
    def _sender(self) -> Session:
        assert self._call.identity is not None
        return self._service.broker.request_sender(self._call.identity, Door.SIDECAR, self._lane)

    def _choose_reading(self) -> None:
        """Read only while nothing is blocked."""
        is_paused = (
            bool(self._waiting)
            or self._is_publishing
            or self._is_full
            or self._unacknowledged_bytes > UNACKNOWLEDGED_BYTES
        )
        if is_paused is self._is_paused or self._call.is_over:
            return
        self._is_paused = is_paused
        if is_paused:
            self._call.pause_reading()
        else:
            self._call.resume_reading()

    # Batches

    def _publish_next(self) -> None:
        if not self._waiting or self._is_publishing:
            return  # the call has ended while this waited, or the batch before it is published in steps
        try:
            self._take(self._waiting.popleft())
        except Exception as error:  # another call may have been unblocked at the same time
            self._fail_internally(error)
        self._choose_reading()

    def _take(self, message: bytes) -> None:
        self.check()
        if self._failure is not None:
            return
        self._is_publishing = is_first_step = True

        def end(batch: Batch) -> None:
            self._is_publishing = False
            self._on_published(batch)
            if not is_first_step:
                if self._waiting:
                    self._service.broker.when_unblocked(self._sender, self._publish_next)
                self._choose_reading()

        self._service.broker.run_steps(self._publish(message), end, self._on_unpublished)
        is_first_step = False

    def _on_unpublished(self, error: Exception) -> None:
        self._is_publishing = False
        if isinstance(error, LongBatch):
            self._fail(TooLarge(str(error)))
        elif isinstance(error, BadBatch):
            self._fail(InvalidRequest(str(error)))
        else:
            self._fail_internally(error)

    def _publish(self, message: bytes) -> Steps[Batch]:
        batch_id, entries = yield from read_batch(message, MAX_MESSAGES)
        batch = Batch(self._service.broker, self._sender, batch_id, max(len(message), BATCH_BYTES))
        yield from batch.publish(entries)
        return batch

    def _on_published(self, batch: Batch) -> None:
        if batch.refusal is not None:
            self._service.note(self._call, batch.refusal)
        self._unacknowledged += 1
        self._unacknowledged_bytes += batch.size_bytes
        self._acks.add(None if batch.has_failed else batch.ticket, batch)

    def _fail_internally(self, error: Exception) -> None:
        self._leave()
        self._service.fail(self._call)

    def _acknowledge_unblocked(self, batches: list[Batch]) -> None:
        """Acknowledge committed batches; core withholds those of a blocked publisher."""
        for batch in batches:
            self._service.broker.when_acknowledgeable(batch.sender, partial(self._acknowledge, batch))

    def _acknowledge(self, batch: Batch) -> None:
        """Acknowledge a batch, behind those whose acknowledgements are still being encoded."""
        self._acknowledging.append(batch)
        if len(self._acknowledging) == 1:
            self._service.broker.run_steps(self._send_acks(), lambda _: None, self._fail_internally)

    def _send_acks(self) -> Steps[None]:
        waiting = self._acknowledging
        while waiting:
            data = yield from waiting[0].acknowledgement()
            batch = waiting.popleft()
            self._call.send(encode_message(data))
            self._unacknowledged -= 1
            self._unacknowledged_bytes -= batch.size_bytes
            self._choose_reading()
            self._finish_if_done()
            if waiting:
                yield

    # Ending

    def check(self) -> None:
        """End the call of a user that has lost its access."""
        access, identity = self._service.broker.access, self._call.identity
        assert identity is not None
        reloads, self._generation = access.generation - self._generation, access.generation
        error = _doubt_of(access, identity, reloads) if reloads else None
        if error is not None and self._failure is None:
            self._fail(error)

    def stop(self) -> None:
        """The server is about to stop: take nothing more."""
        if self._failure is None:
            self._fail(STOPPING)

    def abandon(self) -> None:
        """The server stops now: what is not acknowledged yet will not be."""
        self._unacknowledged = 0
        self._is_publishing = False
        self.stop()
        self._finish_if_done()

    def _fail(self, error: PenstockError) -> None:
        """Take nothing more; what was published before has its acknowledgements first."""
        self._failure = error
        self._waiting.clear()
        self._finish_if_done()

    def _finish_if_done(self) -> None:
        if self._waiting or self._unacknowledged or self._is_publishing or self._call.is_over:
            return
        if self._failure is None and not self._has_all:
            return
        self._leave()
        if self._failure is not None:
            self._service.refuse(self._call, self._failure)
        else:
            self._call.finish()

    def _leave(self) -> None:
        self._acks.close()
        self._service.discard_publisher(self)


def _doubt_of(access: Access, identity: Identity, reloads: int) -> PenstockError | None:
    """Return why a user has lost its access since this generation of the files."""
    if not access.is_known(identity) or access.is_outdated(identity):
        return BadCredentials("your credentials are not valid any more")
    if reloads > 1 and identity.user is not None and not identity.is_certified:
        # Only the last reload is remembered.
        return StorageUnavailable("credentials may have changed; reconnect")
    return None
