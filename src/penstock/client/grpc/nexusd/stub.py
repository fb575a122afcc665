"""Stub of `SidecarService`, for blocking and asynchronous channels of grpcio."""

from datetime import UTC, datetime
from typing import Any, Protocol, TypeAlias

from google.protobuf.message import Message

from penstock.client.messages import Peer
from penstock.wire.sidecar.messages import nexusd

SERVICE = "nexusd.sidecar.SidecarService"
Request: TypeAlias = nexusd.SubscribeRequest | nexusd.ResumeSubscribeRequest
"""First request of a stream."""


class Channel(Protocol):
    """Common part of `grpc.Channel` and `grpc.aio.Channel`."""

    def unary_unary(self, method: str, request_serializer: Any, response_deserializer: Any) -> Any: ...

    def unary_stream(self, method: str, request_serializer: Any, response_deserializer: Any) -> Any: ...


class Stub:
    """One attribute per method; the return types are those of the channel."""

    def __init__(self, channel: Channel) -> None:
        def call(name: str, response: type[Message], kind: Any = channel.unary_unary) -> Any:
            return kind(
                f"/{SERVICE}/{name}",
                request_serializer=encode,
                response_deserializer=response.FromString,
            )

        self.publish = call("Publish", nexusd.PublishResponse)
        self.unsubscribe = call("Unsubscribe", nexusd.UnsubscribeResponse)
        self.get_topics = call("GetTopics", nexusd.GetTopicsResponse)
        self.get_peers = call("GetPeers", nexusd.GetPeersResponse)
        self._subscribe = call("Subscribe", nexusd.MessageEvent, channel.unary_stream)
        self._resume_subscribe = call("ResumeSubscribe", nexusd.MessageEvent, channel.unary_stream)

    def events(self, request: Request, **options: Any) -> Any:
        """Open the stream of a request: `Subscribe` or `ResumeSubscribe`."""
        if isinstance(request, nexusd.SubscribeRequest):
            return self._subscribe(request, **options)
        return self._resume_subscribe(request, **options)


def encode(message: Message) -> bytes:
    """Serialize any protobuf message."""
    return message.SerializeToString()


def peer_from_wire(peer: nexusd.PeerInfo) -> Peer:
    """Decode a peer."""
    seen = datetime.fromtimestamp(peer.last_seen_ms / 1_000, UTC) if peer.last_seen_ms else None
    return Peer(
        node_id=peer.instance_uuid,
        address=peer.endpoint,
        cluster_id=peer.cluster_id,
        status=peer.status,
        last_seen=seen,
        topics=tuple(peer.topics),
    )
