"""The way in of publishes: one call to core for each read, responses in order after the commit."""

import sys
from collections import deque
from typing import TYPE_CHECKING

from penstock.core.broker import ChunkReceipt
from penstock.core.ports.log import Ticket
from penstock.core.sessions.session import Session
from penstock.doors.web.socket.replies import Ack, complaint_of, failure_of, frame_of, not_found, refusal_of
from penstock.doors.web.socket.requests import BadMessage, Publish, RequestId, read_payload
from penstock.errors import NotAuthorized, PenstockError, StorageUnavailable, TooLarge
from penstock.model import Door
from penstock.net.acks_after_commit import OrderedAcks
from penstock.net.read_pause import COMMIT
from penstock.runs import NEVER, Run, bare_shape

if TYPE_CHECKING:
    from penstock.doors.web.socket.connection import SocketConnection

UNSETTLED_LIMIT = 1_000
"""Responses that may wait before the client is not read from."""
WITHHELD_LIMIT_BYTES = 256 * 1024
"""Bytes of events that wait for the responses before them; more are sent as they come."""
_SHAPE = bare_shape(Door.WEB, 1, retain=False)
"""Publishes are acknowledged, so they have QoS 1: offline subscribers get them later."""

Response = tuple[bytes, str | None, RequestId]
"""A frame; if it confirms a publish, also the topic and the request id of that."""


class Inbound:
    """Publishes of one connection without a response.

    Clients match responses by their order, and expect the response to a publish before their own event of
    it. So while such a response waits for its commit, the events of this connection wait behind it.
    """

    __slots__ = (
        "_connection",
        "_session",
        "_taken",
        "_waiting",
        "_withheld",
        "_withheld_bytes",
        "acks",
        "awaited",
    )

    def __init__(self, connection: "SocketConnection", session: Session) -> None:
        self._connection = connection
        self._session = session
        self.acks = OrderedAcks(connection.door.broker.when_committed, self._write, self._roll_back)
        self._waiting = 0  # responses
        self._taken = 0  # all requests so far, of which the last ones wait
        self.awaited = 0
        """The last request so far that has to have its response before events; 0 if none had."""
        self._withheld: deque[tuple[int, bytes]] = deque()  # events, with the request that they wait for
        self._withheld_bytes = 0

    @property
    def is_waiting(self) -> bool:
        """A publish has no response yet, so that later requests wait."""
        return bool(self._waiting)

    def take(self, items: list[Publish | bytes]) -> None:
        """Publish messages, with the responses of other requests between them."""
        has_own_events = False
        try:
            responses, ticket, has_own_events = self._publish(items)
        except Exception:
            self._connection.door.on_failure(self._connection)
            responses, ticket = list(map(_failed, items)), None
        self._taken += len(responses)
        if has_own_events:
            self.awaited = self._taken
        self._settle_later(responses, ticket)

    def withhold(self, events: bytes) -> bool:
        """Keep events until the responses before them are written; False if they may leave now."""
        if self.awaited <= self._taken - self._waiting or self.acks.is_blocked:
            return False
        if self._withheld_bytes > WITHHELD_LIMIT_BYTES:
            self.release()
            return False
        self._withheld.append((self.awaited, events))
        self._withheld_bytes += len(events)
        return True

    def release(self, last: int = sys.maxsize) -> None:
        """Send the events that wait for no later request than this."""
        withheld = self._withheld
        events: list[bytes] = []
        while withheld and withheld[0][0] <= last:
            events.append(withheld.popleft()[1])
        if events:
            data = b"".join(events)
            self._withheld_bytes -= len(data)
            self._connection.send(data)

    def _publish(self, items: list[Publish | bytes]) -> tuple[list[Response], Ticket | None, bool]:
        runs: dict[int, Run] = {}
        refusals: dict[int, PenstockError | BadMessage] = {}
        for place, item in enumerate(items):
            if isinstance(item, Publish):
                try:
                    runs[place] = self._read(item)
                except (PenstockError, BadMessage) as error:
                    refusals[place] = error
        places = {id(run): place for place, run in runs.items()}
        receipt = self._connection.door.broker.publish_all(
            list(runs.values()),
            self._session,
            lambda run, error: refusals.update({places[id(run)]: error}),
        )
        frames: dict[str, bytes] = {}
        responses: list[Response] = []
        for place, item in enumerate(items):
            if isinstance(item, bytes):
                responses.append((item, None, None))
            elif place in refusals:
                refusal = self._refuse(item.topic, item.request_id, refusals[place])
                responses.append((refusal, None, None))
            else:
                responses.append((_confirm(item, receipt, frames), item.topic, item.request_id))
        topics = {run.topic for run in runs.values()} if self._session.subscriptions else ()
        return responses, receipt.ticket, receipt.reaches(self._session, topics)

    def _read(self, request: Publish) -> Run:
        door, topic = self._connection.door, request.topic
        if door.settings.explicit_topics and not door.broker.has_topic(topic):
            if not door.broker.access.may_publish(self._session.identity, topic):
                raise NotAuthorized(f"not allowed to publish to {topic}")  # nor to learn what there is
            raise not_found(topic)
        payload, properties = read_payload(request)
        limit_bytes = door.broker.settings.max_payload_bytes
        if len(payload) > limit_bytes:
            raise TooLarge(f"the payload has {len(payload)} bytes and {limit_bytes} are allowed")
        return Run(topic, payload, 0, len(payload), 1, _SHAPE, properties, NEVER)

    def _refuse(self, topic: str, request_id: RequestId, error: PenstockError | BadMessage) -> bytes:
        if isinstance(error, BadMessage):
            return frame_of(complaint_of(error))
        self._connection.door.on_publish_refused(self._connection, topic, error)
        return frame_of(refusal_of(error, request_id, topic=topic))

    def _settle_later(self, responses: list[Response], ticket: Ticket | None) -> None:
        """Respond after the commit, in the order of the requests."""
        self._waiting += len(responses)
        self.acks.add(ticket, responses)
        if self._waiting > UNSETTLED_LIMIT:
            self._connection.read_pause.pause(COMMIT)

    def _roll_back(self, responses: list[Response], failure: Exception) -> list[Response]:
        """Refuse publishes after a failed commit."""
        error = StorageUnavailable(str(failure))
        return [
            (frame if topic is None else self._refuse(topic, request_id, error), None, None)
            for frame, topic, request_id in responses
        ]

    def _write(self, reads: list[list[Response]]) -> None:
        connection = self._connection
        frames = [response[0] for responses in reads for response in responses]
        self._waiting -= len(frames)
        connection.send_frames(*frames)
        self.release(self._taken - self._waiting)
        connection.read_pause.resume(COMMIT)
        if not self._waiting:
            connection.resume_soon()


def _confirm(request: Publish, receipt: ChunkReceipt, frames: dict[str, bytes]) -> bytes:
    """The response to a publish; those of one read to one topic are the same, but for their ids."""
    topic, frame = request.topic, None
    if request.request_id is None:
        frame = frames.get(topic)
    if frame is None:
        text = f"Published to {receipt.subscribers_of(topic)} subscriber(s)"
        frame = frame_of(Ack("publish", topic, text, request_id=request.request_id))
        if request.request_id is None:
            frames[topic] = frame
    return frame


def _failed(item: Publish | bytes) -> Response:
    """Response to an item that could not be tried."""
    return (item if isinstance(item, bytes) else frame_of(failure_of(item.request_id))), None, None
