"""The calls of NexusD's service on a channel of grpcio, blocking or not, and what its peers are to us."""

from datetime import UTC, datetime
from typing import Any, Protocol, TypeAlias

from google.protobuf.message import Message

from penstock.client.values import Peer
from penstock.wire.sidecar import nexusd

SERVICE = "nexusd.sidecar.SidecarService"
Request: TypeAlias = nexusd.SubscribeRequest | nexusd.ResumeSubscribeRequest
"""What a stream begins with."""


class Channel(Protocol):
    """What `grpc.Channel` and `grpc.aio.Channel` have in common."""

    def unary_unary(self, method: str, request_serializer: Any, response_deserializer: Any) -> Any: ...

    def unary_stream(self, method: str, request_serializer: Any, response_deserializer: Any) -> Any: ...


class Stub:
    """One attribute for each call; what it gives back depends on the channel."""

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
        """The stream that a request begins: `Subscribe`, or `ResumeSubscribe`."""
        if isinstance(request, nexusd.SubscribeRequest):
            return self._subscribe(request, **options)
        return self._resume_subscribe(request, **options)


def encode(message: Message) -> bytes:
    """The bytes of a message of any kind."""
    return message.SerializeToString()


def peer_of(peer: nexusd.PeerInfo) -> Peer:
    """Another node, as a value."""
    seen = datetime.fromtimestamp(peer.last_seen_ms / 1_000, UTC) if peer.last_seen_ms else None
    return Peer(
        node_id=peer.instance_uuid,
        address=peer.endpoint,
        cluster_id=peer.cluster_id,
        status=peer.status,
        last_seen=seen,
        topics=tuple(peer.topics),
    )
