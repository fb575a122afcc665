"""What clients publish: handed to core in one go for each read, and answered in order when it is safe."""

from collections import deque
from typing import TYPE_CHECKING

from penstock.core.ports import Ticket
from penstock.core.sessions import Session
from penstock.doors.gate import Why
from penstock.doors.web.socket.replies import Ack, complaint_of, failure_of, frame_of, not_found, refusal_of
from penstock.doors.web.socket.requests import BadMessage, Publish, read_payload
from penstock.errors import NotAuthorized, PenstockError, StorageUnavailable, TooLarge
from penstock.model import NEVER, Door, Run, bare_shape

if TYPE_CHECKING:
    from penstock.doors.web.socket.connection import SocketConnection

SETTLED: Ticket = 0
"""Stands for what waits for no commit."""
UNSETTLED_LIMIT = 1_000
"""How many answers may wait before we read no more from a client."""
_SHAPE = bare_shape(Door.WEB, 1, retain=False)
"""What is published here is acknowledged, so it is at QoS 1: who is away and wants it gets it later."""

Answer = tuple[bytes, Publish | None]
"""A frame, and the publish that it confirms if it does."""


class Intake:
    """What one connection has sent and has no answer to yet."""

    __slots__ = ("_connection", "_pending", "_ready", "_session", "_waiting")

    def __init__(self, connection: "SocketConnection", session: Session) -> None:
        self._connection = connection
        self._session = session
        self._pending: deque[tuple[Ticket, list[Answer]]] = deque()  # each waits for its commit
        self._ready: list[bytes] = []  # may leave, unless the client is held back
        self._waiting = 0  # how many there are in both

    @property
    def is_waiting(self) -> bool:
        """Something has no answer yet that came before anything new."""
        return bool(self._waiting)

    def take(self, items: list[Publish | bytes]) -> None:
        """Publish messages; between them stand the answers to what came between them."""
        try:
            answers, ticket = self._publish(items)
        except Exception:
            self._connection.door.on_failure(self._connection)
            answers, ticket = list(map(_failed, items)), None
        self._settle_later(answers, ticket)

    def _publish(self, items: list[Publish | bytes]) -> tuple[list[Answer], Ticket | None]:
        runs: dict[int, Run] = {}
        refusals: dict[int, PenstockError | BadMessage] = {}
        for place, item in enumerate(items):
            if isinstance(item, Publish):
                try:
                    runs[place] = self._read(item)
                except (PenstockError, BadMessage) as error:
                    refusals[place] = error
        places = {id(run): place for place, run in runs.items()}
        ticket = self._connection.door.broker.publish_all(
            list(runs.values()),
            self._session,
            lambda run, error: refusals.update({places[id(run)]: error}),
        )
        frames: dict[str, bytes] = {}
        answers: list[Answer] = []
        for place, item in enumerate(items):
            if isinstance(item, bytes):
                answers.append((item, None))
            elif place in refusals:
                answers.append((self._refuse(item, refusals[place]), None))
            else:
                answers.append((self._confirm(item, frames), item))
        return answers, ticket

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

    def _confirm(self, request: Publish, frames: dict[str, bytes]) -> bytes:
        """The answer to a publish; those of one read to one topic are the same, but for their ids."""
        topic, frame = request.topic, None
        if request.request_id is None:
            frame = frames.get(topic)
        if frame is None:
            count = len(self._connection.door.broker.topics[topic].audience)
            text = f"Published to {count} subscriber(s)"
            frame = frame_of(Ack("publish", topic, text, request_id=request.request_id))
            if request.request_id is None:
                frames[topic] = frame
        return frame

    def _refuse(self, request: Publish, error: PenstockError | BadMessage) -> bytes:
        if isinstance(error, BadMessage):
            return frame_of(complaint_of(error))
        self._connection.door.on_publish_refused(self._connection, request.topic, error)
        return frame_of(refusal_of(error, request.request_id, topic=request.topic))

    def _settle_later(self, answers: list[Answer], ticket: Ticket | None) -> None:
        """Answer when what was published may be relied on; answers keep the order of the requests."""
        self._waiting += len(answers)
        last = self._pending[-1][0] if self._pending else SETTLED
        ticket = max(ticket or SETTLED, last)
        if self._pending and ticket == last:
            self._pending[-1][1].extend(answers)
        else:
            self._pending.append((ticket, answers))
            self._connection.door.broker.when_settled(ticket or None, self._on_settled)
        if self._waiting > UNSETTLED_LIMIT:
            self._connection.gate.shut(Why.STORING)

    def _on_settled(self, failure: Exception | None) -> None:
        _, answers = self._pending.popleft()
        for frame, request in answers:
            if failure is None or request is None:
                self._ready.append(frame)
            else:
                self._ready.append(self._refuse(request, StorageUnavailable(str(failure))))
        self.settle()

    def settle(self) -> None:
        """Send the answers that may leave, unless the client is held back."""
        connection = self._connection
        if connection.is_held or not self._ready:
            return
        frames, self._ready = self._ready, []
        self._waiting -= len(frames)
        connection.say(*frames)
        connection.gate.open(Why.STORING)
        if not self._waiting:
            connection.go_on_soon()


def _failed(item: Publish | bytes) -> Answer:
    """The answer to an item that we could not even try."""
    return (item if isinstance(item, bytes) else frame_of(failure_of(item.request_id))), None
