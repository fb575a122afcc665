"""Why: explains a delivery or its absence, as `GET /api/v1/why` does, with the same access rules."""

from asyncio import Task
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from penstock.common.topics import check_topic
from penstock.core.diagnostics.ledger import Row
from penstock.core.diagnostics.why import check_asker, explain
from penstock.core.diagnostics.why_types import Explanation, Published
from penstock.doors.sidecar.transport.method import Call
from penstock.doors.sidecar.transport.status import undecodable
from penstock.errors import InvalidRequest, PenstockError, ShuttingDown
from penstock.wire.sidecar.messages import penstock as wire

if TYPE_CHECKING:
    from penstock.doors.sidecar.v1.service import PenstockService


class Why:
    """Responds to calls, each when its explanation is complete."""

    def __init__(self, service: "PenstockService") -> None:
        self._service = service
        self._broker = service.broker
        self._tasks: dict[Call, Task[None]] = {}

    def begin(self, call: Call, message: bytes) -> None:
        """Look for the response to a call."""
        try:
            asked = wire.WhyRequest.FromString(message)
        except DecodeError:
            self._service.refuse(call, undecodable("WhyRequest"))
            return
        task = self._tasks[call] = self._service.loop.create_task(self._respond(call, asked))
        task.add_done_callback(lambda _: self._tasks.pop(call, None))

    def close(self) -> None:
        """Cancel all calls."""
        for call, task in list(self._tasks.items()):
            task.cancel()
            self._service.refuse(call, ShuttingDown("the server is about to stop"))

    async def _respond(self, call: Call, asked: wire.WhyRequest) -> None:
        try:
            self._check(call, asked)
            said = await explain(self._broker, asked.topic, asked.sequence, asked.client_id or None)
            call.respond(response_of(said).SerializeToString())
        except PenstockError as error:
            self._service.refuse(call, error)
        except Exception:
            self._service.fail(call)

    def _check(self, call: Call, asked: wire.WhyRequest) -> None:
        check_topic(asked.topic, self._broker.settings.topic)
        if asked.sequence < 0:
            raise InvalidRequest("a sequence is not negative")
        assert call.identity is not None
        check_asker(self._broker, call.identity, asked.topic, asked.client_id or None)


def response_of(said: Explanation) -> wire.WhyResponse:
    """An explanation as a message."""
    return wire.WhyResponse(
        code=said.code,
        text=said.text,
        newest=said.newest,
        message=None if said.message is None else _message(said.message),
        rows=[_row(row) for row in said.rows],
        waiting=[
            wire.Waiting(
                client_id=each.client_id, place=each.place, ahead=each.ahead, is_connected=each.is_connected
            )
            for each in said.waiting
        ],
        filters=said.filters,
        rows_forgotten=said.rows_forgotten,
        is_truncated=said.is_truncated,
    )


def _message(known: Published) -> wire.Published:
    return wire.Published(
        published_at_us=known.published_at,
        client_id=known.client_id,
        qos=known.qos,
        retain=bool(known.retain),
        door=known.door,
        offset=known.offset,
        missing=known.missing,
    )


def _row(row: Row) -> wire.LedgerRow:
    return wire.LedgerRow(
        topic=row.topic,
        client_id=row.client_id,
        reason=row.reason,
        policy=row.policy,
        setting=row.setting,
        first=row.first,
        last=row.last,
        count=row.count,
        first_at_us=row.first_at,
        last_at_us=row.last_at,
    )
