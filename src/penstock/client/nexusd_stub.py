"""The calls of NexusD's service on a channel of grpcio, blocking or not."""

from typing import Any, Protocol, TypeAlias

from google.protobuf.message import Message

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

    def events(self, request: nexusd.SubscribeRequest | nexusd.ResumeSubscribeRequest, **options: Any) -> Any:
        """The stream that a request begins: `Subscribe`, or `ResumeSubscribe`."""
        if isinstance(request, nexusd.SubscribeRequest):
            return self._subscribe(request, **options)
        return self._resume_subscribe(request, **options)


def encode(message: Message) -> bytes:
    """The bytes of a message of any kind."""
    return message.SerializeToString()
