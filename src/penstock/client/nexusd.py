"""The dialect of NexusD's service, for servers that do not offer Penstock's own.

It carries less: no response topic, no properties, no id given by the publisher. Such a message is refused
here instead of being sent without them. Messages are published one by one.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.client.calls import answer_of
from penstock.client.dialect import Acknowledgement, Entry, FeedOptions, Placed, Refused
from penstock.client.errors import ConnectionLost, RequestRefused, UnknownService
from penstock.client.nexusd_feed import NexusdFeed
from penstock.client.nexusd_stub import Request, Stub, peer_of
from penstock.client.reconnection import is_worth_a_try
from penstock.client.values import Explanation, Peer
from penstock.errors import InvalidRequest, PenstockError
from penstock.wire.sidecar import nexusd

if TYPE_CHECKING:
    import grpc.aio

_NOT_CARRIED = ("response_topic", "properties", "message_ids")


class NexusdDialect:
    """Speaks `SidecarService`; see `Dialect`.

    Args:
        metadata: what is added to every call: who we are.
        timeout_s: how long the server may take for an answer.
    """

    bears_pings = False  # a server of grpc hangs up on who does, unless it was told not to

    def __init__(self, metadata: tuple[tuple[str, str], ...], timeout_s: float) -> None:
        self._metadata = metadata
        self._timeout_s = timeout_s
        self._stub: Stub | None = None
        self._turn = asyncio.Lock()  # whose messages go out; batches keep their order

    async def connect(self, channel: "grpc.aio.Channel") -> None:
        self._stub = Stub(channel)
        await self.topics()

    async def publish(self, entries: Sequence[Entry]) -> Acknowledgement:
        async with self._turn:
            accepted = 0
            placed: list[Placed] = []
            refused: list[Refused] = []
            for index, entry in enumerate(entries):
                try:
                    responses = await self._publish_entry(entry)
                except PenstockError as error:
                    if is_worth_a_try(error):
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
        return dict((await self._ask(self._calls().get_topics, request)).topics)

    async def peers(self) -> Sequence[Peer]:
        request = nexusd.GetPeersRequest(include_state=True)
        return [peer_of(peer) for peer in (await self._ask(self._calls().get_peers, request)).peers]

    async def why(self, topic: str, sequence: int, client_id: str | None) -> Explanation:
        raise UnknownService("a NexusD daemon cannot be asked why")

    async def close(self) -> None:
        self._stub = None

    async def _publish_entry(self, entry: Entry) -> list[nexusd.PublishResponse]:
        """Publish its messages; if one is refused, those before it are out, and the error says so."""
        request = _request_of(entry)
        responses: list[nexusd.PublishResponse] = []
        for payload in entry.payloads:
            request.payload = payload
            try:
                response = await self._ask(self._calls().publish, request)
                if not response.success:
                    raise RequestRefused(response.error_message or "the daemon does not say why")
            except PenstockError as error:
                if responses and not is_worth_a_try(error):
                    raise type(error)(
                        f"{error} (after {len(responses)} messages that were published)"
                    ) from None
                raise
            responses.append(response)
        return responses

    async def _unsubscribe(self, subscription_id: str, is_pause: bool) -> None:
        request = nexusd.UnsubscribeRequest(subscription_id=subscription_id, pause=is_pause)
        with contextlib.suppress(PenstockError):  # who is not there needs no telling
            await self._ask(self._calls().unsubscribe, request)

    def _open_stream(self, request: Request) -> Any:
        return self._calls().events(request, metadata=self._metadata)

    async def _ask(self, call: Any, request: Any) -> Any:
        return await answer_of(call(request, timeout=self._timeout_s, metadata=self._metadata))

    def _calls(self) -> Stub:
        if self._stub is None:
            raise ConnectionLost("not connected")
        return self._stub


def _request_of(entry: Entry) -> nexusd.PublishRequest:
    for name in _NOT_CARRIED:
        if getattr(entry, name):
            raise InvalidRequest(f"a NexusD daemon does not carry {name.replace('_', ' ')}")
    try:
        correlation_id = entry.correlation_id.decode()
    except UnicodeDecodeError:
        raise InvalidRequest("a NexusD daemon carries only text as correlation id") from None
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
