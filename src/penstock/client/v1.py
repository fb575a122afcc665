"""The dialect of Penstock's own service: many messages in each call, a cursor in every event.

Topics and peers are asked of `SidecarService`, which every Penstock server offers beside it.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from penstock.client.calls import answer_of, next_of
from penstock.client.dialect import Acknowledgement, Entry, FeedOptions
from penstock.client.errors import ConnectionLost
from penstock.client.nexusd_stub import SERVICE, encode, peer_of
from penstock.client.v1_feed import V1Feed
from penstock.client.v1_publishing import Publisher
from penstock.client.values import (
    Explanation,
    LedgerRow,
    Peer,
    PublishedMessage,
    WaitingMessage,
    time_of,
)
from penstock.errors import InvalidTopic
from penstock.wire.sidecar import nexusd
from penstock.wire.sidecar import penstock as words

if TYPE_CHECKING:
    import grpc.aio

    Metadata = tuple[tuple[str, str], ...]
    Stream = grpc.aio.StreamStreamCall[Any, Any]

_SERVICE = "/penstock.v1.Penstock"
_SIDECAR = f"/{SERVICE}"


class V1Dialect:
    """Speaks `penstock.v1`; see `Dialect`.

    Args:
        metadata: what is added to every call: who we are.
        timeout_s: how long the server may take for an answer.
    """

    bears_pings = True

    def __init__(self, metadata: "Metadata", timeout_s: float) -> None:
        self._metadata = metadata
        self._timeout_s = timeout_s
        self._channel: grpc.aio.Channel | None = None
        self._publisher: Publisher | None = None

    async def connect(self, channel: "grpc.aio.Channel") -> None:
        await self.close()
        self._channel = channel
        await self._knock()
        self._publisher = Publisher(self._open_publish)

    async def publish(self, entries: Sequence[Entry]) -> Acknowledgement:
        if self._publisher is None:
            raise ConnectionLost("not connected")
        if self._publisher.is_spoilt:
            self._publisher = Publisher(self._open_publish)
        return await self._publisher.publish(entries)

    def feed(self, options: FeedOptions) -> V1Feed:
        return V1Feed(options, self._open_subscribe)

    async def topics(self) -> Mapping[str, int]:
        request = nexusd.GetTopicsRequest(include_counts=True)
        answer = await self._ask(f"{_SIDECAR}/GetTopics", request, nexusd.GetTopicsResponse)
        return dict(answer.topics)

    async def peers(self) -> Sequence[Peer]:
        request = nexusd.GetPeersRequest(include_state=True)
        answer = await self._ask(f"{_SIDECAR}/GetPeers", request, nexusd.GetPeersResponse)
        return [peer_of(peer) for peer in answer.peers]

    async def why(self, topic: str, sequence: int, client_id: str | None) -> Explanation:
        request = words.WhyRequest(topic=topic, sequence=sequence, client_id=client_id or "")
        return explanation_of(await self._ask(f"{_SERVICE}/Why", request, words.WhyResponse))

    async def close(self) -> None:
        publisher, self._publisher = self._publisher, None
        self._channel = None
        if publisher is not None:
            await publisher.close()

    # Calls

    async def _knock(self) -> None:
        """See who is there, and whether it lets us in."""
        call = self._open_subscribe(_hello())
        try:
            await next_of(call)
        except ConnectionLost:
            await self._knock_again()  # a stream that is refused at once may end without its status
        finally:
            call.cancel()

    async def _knock_again(self) -> None:
        """Ask something that no server of this kind likes, and every one understands."""
        with suppress(InvalidTopic):
            await self._ask(f"{_SERVICE}/Why", words.WhyRequest(), words.WhyResponse)

    async def _ask(self, path: str, request: Message, answer: type[Any]) -> Any:
        call = self._open_channel().unary_unary(
            path, request_serializer=encode, response_deserializer=answer.FromString
        )
        return await answer_of(call(request, timeout=self._timeout_s, metadata=self._metadata))

    def _open_publish(self, batches: AsyncIterator[words.PublishBatch]) -> "Stream":
        return self._open(f"{_SERVICE}/Publish", batches, words.PublishAck)

    def _open_subscribe(self, requests: AsyncIterator[words.SubscribeRequest]) -> "Stream":
        return self._open(f"{_SERVICE}/Subscribe", requests, words.SubscribeEvent)

    def _open(self, path: str, requests: AsyncIterator[Any], answer: type[Any]) -> "Stream":
        method = self._open_channel().stream_stream(
            path, request_serializer=encode, response_deserializer=answer.FromString
        )
        return method(requests, metadata=self._metadata)

    def _open_channel(self) -> "grpc.aio.Channel":
        if self._channel is None:
            raise ConnectionLost("not connected")
        return self._channel


async def _hello() -> AsyncIterator[words.SubscribeRequest]:
    yield words.SubscribeRequest(request_id=1, open=words.Open(credit=1))


def explanation_of(answer: words.WhyResponse) -> Explanation:
    """Why somebody got a message, or did not, as a value."""
    return Explanation(
        code=answer.code,
        text=answer.text,
        newest=answer.newest,
        message=_published(answer.message) if answer.HasField("message") else None,
        rows=tuple(map(_ledger_row, answer.rows)),
        waiting=tuple(
            WaitingMessage(
                client_id=each.client_id, place=each.place, ahead=each.ahead, is_connected=each.is_connected
            )
            for each in answer.waiting
        ),
        filters=tuple(answer.filters),
        rows_forgotten=answer.rows_forgotten,
    )


def _published(message: words.Published) -> PublishedMessage:
    return PublishedMessage(
        published_at=time_of(message.published_at_us),
        client_id=message.client_id,
        qos=message.qos,
        retain=message.retain,
        door=message.door,
        offset=message.offset,
        missing=message.missing or None,
    )


def _ledger_row(row: words.LedgerRow) -> LedgerRow:
    return LedgerRow(
        topic=row.topic,
        client_id=row.client_id,
        reason=row.reason,
        policy=row.policy or None,
        setting=row.setting or None,
        first=row.first,
        last=row.last,
        count=row.count,
        first_at=time_of(row.first_at_us),
        last_at=time_of(row.last_at_us),
    )
