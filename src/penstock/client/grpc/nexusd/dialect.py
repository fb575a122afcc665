"""Dialect of NexusD daemons, for servers without `penstock.v1`.

The service has no response topic, no properties and no publisher's message id: messages with one are refused
here. Messages are published one by one.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.client.errors import ConnectionLost, RequestRefused, UnknownService, is_worth_retrying
from penstock.client.grpc.connection import await_call
from penstock.client.grpc.dialect import Acknowledgement, Entry, FeedOptions, Placed, Refused
from penstock.client.grpc.nexusd.feed import NexusdFeed
from penstock.client.grpc.nexusd.stub import Request, Stub, peer_from_wire
from penstock.client.messages import Explanation, Peer
from penstock.errors import InvalidRequest, PenstockError
from penstock.wire.sidecar.messages import nexusd

if TYPE_CHECKING:
    import grpc.aio

_UNSUPPORTED = ("response_topic", "properties", "message_ids")


class NexusdDialect:
    """`Dialect` for `SidecarService`.

    Args:
        metadata: sent with every call: credentials and client id.
        timeout_s: limit for a response.
    """

    allows_idle_pings = False  # by default a server of grpc closes connections that send them

    def __init__(self, metadata: tuple[tuple[str, str], ...], timeout_s: float) -> None:
        self._metadata = metadata
        self._timeout_s = timeout_s
        self._stub: Stub | None = None
        self._publishing = asyncio.Lock()  # batches keep their order

    async def connect(self, channel: "grpc.aio.Channel") -> None:
        self._stub = Stub(channel)
        await self.topics()

    async def publish(self, entries: Sequence[Entry]) -> Acknowledgement:
        async with self._publishing:
            accepted = 0
            placed: list[Placed] = []
            refused: list[Refused] = []
            for index, entry in enumerate(entries):
                try:
                    responses = await self._publish_entry(entry)
                except PenstockError as error:
                    if is_worth_retrying(error):
                        raise
                    refused.append(Refused(index, error.code, str(error)))
                else:
                    accepted += len(responses)
                    placed.append(_placed(index, responses))
            return Acknowledgement(accepted, placed, refused)

    def feed(self, options: FeedOptions) -> NexusdFeed:
        return NexusdFeed(options, self._open_stream, self._unsubscribe)

    async def topics(self) -> Mapping[str, int]:
        request = nexusd.GetTopicsRequest(include_counts=True)
        response = await self._call(self._connected().get_topics, request)
        return dict(response.topics)

    async def peers(self) -> Sequence[Peer]:
        request = nexusd.GetPeersRequest(include_state=True)
        return [
            peer_from_wire(peer) for peer in (await self._call(self._connected().get_peers, request)).peers
        ]

    async def why(self, topic: str, sequence: int, client_id: str | None) -> Explanation:
        raise UnknownService("a NexusD daemon does not support `why`")

    async def close(self) -> None:
        self._stub = None

    async def _publish_entry(self, entry: Entry) -> list[nexusd.PublishResponse]:
        """Publish its messages. After a refusal the error says how many were published before."""
        request = _make_request(entry)
        responses: list[nexusd.PublishResponse] = []
        for payload in entry.payloads:
            request.payload = payload
            try:
                response = await self._call(self._connected().publish, request)
                if not response.success:
                    raise RequestRefused(response.error_message or "the daemon gave no reason")
            except PenstockError as error:
                if responses and not is_worth_retrying(error):
                    raise type(error)(f"{error} (after {len(responses)} published messages)") from None
                raise
            responses.append(response)
        return responses

    async def _unsubscribe(self, subscription_id: str, is_pause: bool) -> None:
        request = nexusd.UnsubscribeRequest(subscription_id=subscription_id, pause=is_pause)
        with contextlib.suppress(PenstockError):  # best effort
            await self._call(self._connected().unsubscribe, request)

    def _open_stream(self, request: Request) -> Any:
        return self._connected().events(request, metadata=self._metadata)

    async def _call(self, call: Any, request: Any) -> Any:
        return await await_call(call(request, timeout=self._timeout_s, metadata=self._metadata))

    def _connected(self) -> Stub:
        if self._stub is None:
            raise ConnectionLost("not connected")
        return self._stub


def _make_request(entry: Entry) -> nexusd.PublishRequest:
    for name in _UNSUPPORTED:
        if getattr(entry, name):
            raise InvalidRequest(f"a NexusD daemon does not support {name.replace('_', ' ')}")
    try:
        correlation_id = entry.correlation_id.decode()
    except UnicodeDecodeError:
        raise InvalidRequest("a NexusD daemon supports only text as correlation id") from None
    return nexusd.PublishRequest(
        topic=entry.topic,
        content_type=entry.content_type,
        retain=entry.retain,
        correlation_id=correlation_id,
        ttl_ms=entry.ttl_ms,
    )


def _placed(index: int, responses: Sequence[nexusd.PublishResponse]) -> Placed:
    last = responses[-1] if responses else nexusd.PublishResponse()
    return Placed(
        index,
        subscribers=last.subscriber_count,
        dropped=sum(each.subscribers_dropped for each in responses),
        blocked=sum(each.subscribers_blocked for each in responses),
        message_id=last.message_id,
    )
