"""Dialect of Penstock servers: batches of messages per call, a cursor in every event.

Topics and peers are requested from `SidecarService`, which every Penstock server offers too.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from penstock.client.errors import ConnectionLost
from penstock.client.grpc.connection import await_call, read_next
from penstock.client.grpc.dialect import Acknowledgement, Entry, FeedOptions
from penstock.client.grpc.nexusd.stub import SERVICE, encode, peer_from_wire
from penstock.client.grpc.v1.feed import V1Feed
from penstock.client.grpc.v1.publish import Publisher
from penstock.client.messages import (
    Explanation,
    LedgerRow,
    Peer,
    PublishedMessage,
    WaitingMessage,
    datetime_from_us,
)
from penstock.errors import InvalidTopic
from penstock.wire.sidecar.messages import nexusd
from penstock.wire.sidecar.messages import penstock as pb

if TYPE_CHECKING:
    import grpc.aio

    Metadata = tuple[tuple[str, str], ...]
    Stream = grpc.aio.StreamStreamCall[Any, Any]

_SERVICE = "/penstock.v1.Penstock"
_SIDECAR = f"/{SERVICE}"


class V1Dialect:
    """`Dialect` for `penstock.v1`.

    Args:
        metadata: sent with every call: credentials and client id.
        timeout_s: limit for a response.
    """

    allows_idle_pings = True

    def __init__(self, metadata: "Metadata", timeout_s: float) -> None:
        self._metadata = metadata
        self._timeout_s = timeout_s
        self._channel: grpc.aio.Channel | None = None
        self._publisher: Publisher | None = None

    async def connect(self, channel: "grpc.aio.Channel") -> None:
        await self.close()
        self._channel = channel
        await self._check_server()
        self._publisher = Publisher(self._open_publish)

    async def publish(self, entries: Sequence[Entry]) -> Acknowledgement:
        if self._publisher is None:
            raise ConnectionLost("not connected")
        if self._publisher.has_failed:
            self._publisher = Publisher(self._open_publish)
        return await self._publisher.publish(entries)

    def feed(self, options: FeedOptions) -> V1Feed:
        return V1Feed(options, self._open_subscribe)

    async def topics(self) -> Mapping[str, int]:
        request = nexusd.GetTopicsRequest(include_counts=True)
        response = await self._call(f"{_SIDECAR}/GetTopics", request, nexusd.GetTopicsResponse)
        return dict(response.topics)

    async def peers(self) -> Sequence[Peer]:
        request = nexusd.GetPeersRequest(include_state=True)
        response = await self._call(f"{_SIDECAR}/GetPeers", request, nexusd.GetPeersResponse)
        return [peer_from_wire(peer) for peer in response.peers]

    async def why(self, topic: str, sequence: int, client_id: str | None) -> Explanation:
        request = pb.WhyRequest(topic=topic, sequence=sequence, client_id=client_id or "")
        return explanation_from_wire(await self._call(f"{_SERVICE}/Why", request, pb.WhyResponse))

    async def close(self) -> None:
        publisher, self._publisher = self._publisher, None
        self._channel = None
        if publisher is not None:
            await publisher.close()

    # Calls

    async def _check_server(self) -> None:
        """Check that the server offers the service and admits the client."""
        call = self._open_subscribe(_open_requests())
        try:
            await read_next(call)
        except ConnectionLost:
            await self._check_by_call()  # a stream that is refused at once may end without a status
        finally:
            call.cancel()

    async def _check_by_call(self) -> None:
        """Send a request that every server of this kind understands and refuses."""
        with suppress(InvalidTopic):
            await self._call(f"{_SERVICE}/Why", pb.WhyRequest(), pb.WhyResponse)

    async def _call(self, path: str, request: Message, response: type[Any]) -> Any:
        call = self._open_channel().unary_unary(
            path, request_serializer=encode, response_deserializer=response.FromString
        )
        return await await_call(call(request, timeout=self._timeout_s, metadata=self._metadata))

    def _open_publish(self, batches: AsyncIterator[pb.PublishBatch]) -> "Stream":
        return self._open(f"{_SERVICE}/Publish", batches, pb.PublishAck)

    def _open_subscribe(self, requests: AsyncIterator[pb.SubscribeRequest]) -> "Stream":
        return self._open(f"{_SERVICE}/Subscribe", requests, pb.SubscribeEvent)

    def _open(self, path: str, requests: AsyncIterator[Any], response: type[Any]) -> "Stream":
        method = self._open_channel().stream_stream(
            path, request_serializer=encode, response_deserializer=response.FromString
        )
        return method(requests, metadata=self._metadata)

    def _open_channel(self) -> "grpc.aio.Channel":
        if self._channel is None:
            raise ConnectionLost("not connected")
        return self._channel


async def _open_requests() -> AsyncIterator[pb.SubscribeRequest]:
    yield pb.SubscribeRequest(request_id=1, open=pb.Open(credit=1))


def explanation_from_wire(response: pb.WhyResponse) -> Explanation:
    """Decode the explanation of a delivery."""
    return Explanation(
        code=response.code,
        text=response.text,
        newest=response.newest,
        message=_published(response.message) if response.HasField("message") else None,
        rows=tuple(map(_ledger_row, response.rows)),
        waiting=tuple(
            WaitingMessage(
                client_id=each.client_id, place=each.place, ahead=each.ahead, is_connected=each.is_connected
            )
            for each in response.waiting
        ),
        filters=tuple(response.filters),
        rows_forgotten=response.rows_forgotten,
    )


def _published(message: pb.Published) -> PublishedMessage:
    return PublishedMessage(
        published_at=datetime_from_us(message.published_at_us),
        client_id=message.client_id,
        qos=message.qos,
        retain=message.retain,
        door=message.door,
        offset=message.offset,
        missing=message.missing or None,
    )


def _ledger_row(row: pb.LedgerRow) -> LedgerRow:
    return LedgerRow(
        topic=row.topic,
        client_id=row.client_id,
        reason=row.reason,
        policy=row.policy or None,
        setting=row.setting or None,
        first=row.first,
        last=row.last,
        count=row.count,
        first_at=datetime_from_us(row.first_at_us),
        last_at=datetime_from_us(row.last_at_us),
    )
