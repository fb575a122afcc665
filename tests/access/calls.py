"""The sidecar door as an intruder meets it: calls whose metadata says who makes them, to either service."""

import asyncio
from base64 import b64encode
from collections.abc import Iterator
from itertools import count
from typing import Any

from penstock.wire.grpc import Status
from penstock.wire.sidecar.messages import nexusd
from penstock.wire.sidecar.messages import penstock as own
from tests.access.channels import Channel, Conversation, Metadata
from tests.access.entrances import NULL, Ability, Credentials, Heard
from tests.access.streams import careless
from tests.support.servers import RunningServer

SIDECAR = "/nexusd.sidecar.SidecarService/"
OWN = "/penstock.v1.Penstock/"
LAST = 1_000
"""How much of the past a visitor asks for when it pries."""
PLACES_AT_ONCE = 4
FENCES = 3
"""Calls after which everything is there that was published, or kept, before the first of them."""
KINDS_OF_MESSAGES = ("message", "retained_message", "replay_message")


def authorization_of(credentials: Credentials) -> Metadata:
    """Credentials as a header has them."""
    if credentials.user is None:
        return ()
    pair = credentials.user.replace(NULL, "\0").encode() + b":" + (credentials.password or b"")
    return ((b"authorization", b"Basic " + b64encode(pair)),)


def words_of(credentials: Credentials) -> Metadata:
    """Credentials as plain words, whatever is in them."""
    found: list[tuple[bytes, bytes]] = []
    if credentials.user is not None:
        found.append((b"username", credentials.user.replace(NULL, "\0").encode()))
    if credentials.password is not None:
        found.append((b"password", credentials.password))
    return found


class Caller:
    """Somebody with a connection and a name; what each service can do is added to it."""

    is_known = False

    def __init__(self, channel: Channel, metadata: Metadata, client_id: str, places: Iterator[str]) -> None:
        self.channel = channel
        self._metadata = metadata
        self._client_id = client_id.replace(NULL, "\0")
        self._places = places

    async def ask(self, path: str, request: Any) -> tuple[Status, bytes]:
        """Make a call that has one answer."""
        return await self.channel.ask(path, self._metadata, request.SerializeToString())

    async def is_let_in(self) -> bool:
        """Whether the server wants anything to do with it."""
        status, _ = await self.ask(f"{SIDECAR}GetPeers", nexusd.GetPeersRequest())
        return status is Status.OK

    async def fence(self) -> None:
        """Wait until everything has come that is on its way."""
        for _ in range(FENCES):
            await self.ask(f"{SIDECAR}GetPeers", nexusd.GetPeersRequest())

    async def leave(self) -> None:
        self.channel.close()

    vanish = leave


class SidecarVisitor(Caller):
    """A client of NexusD's service: a call for every subscription."""

    def __init__(self, *all: Any) -> None:
        super().__init__(*all)
        self._streams: list[Conversation] = []

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> bool:
        request = nexusd.PublishRequest(topic=topic.replace(NULL, "\0"), payload=payload, retain=retain)
        status, answer = await self.ask(f"{SIDECAR}Publish", request)
        return status is Status.OK and nexusd.PublishResponse.FromString(answer).success

    async def subscribe(self, filter: str) -> bool:
        """Follow a filter, and the values that are kept."""
        request = nexusd.SubscribeRequest(
            topics=[filter.replace(NULL, "\0")], client_id=self._client_id, receive_retained=True
        )
        return await self.follow("Subscribe", request) is not None

    async def resume(self, id: str, **fields: Any) -> nexusd.SubscriptionInfo | None:
        """Go on with a subscription; None if the server does not let that happen."""
        mode = nexusd.GAP_RECOVERY_REPLAY_BUFFER
        request = nexusd.ResumeSubscribeRequest(subscription_id=id, gap_recovery_mode=mode, **fields)
        return await self.follow("ResumeSubscribe", request)

    async def follow(self, method: str, request: Any) -> nexusd.SubscriptionInfo | None:
        """Begin a stream; None if the server says no."""
        stream = self.channel.call(f"{SIDECAR}{method}", self._metadata, request.SerializeToString())
        self._streams.append(stream)
        first = await stream.take()
        return None if first is None else nexusd.MessageEvent.FromString(first).subscription_info

    @property
    def endings(self) -> list[Status | None]:
        """How its streams have ended, in their order."""
        return [stream.status for stream in self._streams]

    def stop(self) -> None:
        """Cancel its streams."""
        for stream in self._streams:
            stream.cancel()

    async def heard(self) -> list[Heard]:
        await self.fence()
        heard: list[Heard] = []
        for data in (data for stream in self._streams for data in stream.take_all()):
            event = nexusd.MessageEvent.FromString(data)
            kind = event.WhichOneof("event")
            if kind in KINDS_OF_MESSAGES:
                message = getattr(event, kind)
                heard.append((message.topic, message.payload))
        return heard

    async def pry(self) -> list[Heard]:
        """The names of topics."""
        status, answer = await self.ask(f"{SIDECAR}GetTopics", nexusd.GetTopicsRequest(include_counts=True))
        found = nexusd.GetTopicsResponse.FromString(answer).topics if status is Status.OK else ()
        return [(name, b"") for name in found]


class OwnVisitor(Caller):
    """A client of our own service: one call for all that it listens to, and one for each batch."""

    def __init__(self, *all: Any) -> None:
        super().__init__(*all)
        self._stream: Conversation | None = None
        self._numbers = count(1)
        self._events: list[Heard] = []
        self.withdrawn: list[str] = []
        self.cursor = ""
        """Behind what was heard last."""
        self.session_id = ""

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> bool:
        entry = own.Messages(topic=topic.replace(NULL, "\0"), payloads=[payload], retain=retain)
        status, answer = await self.ask(f"{OWN}Publish", own.PublishBatch(batch_id=1, messages=[entry]))
        return status is Status.OK and own.PublishAck.FromString(answer).accepted == 1

    async def subscribe(self, filter: str) -> bool:
        """Add a filter, and hear the values that are kept."""
        return await self.add(own.Add(filters=[filter.replace(NULL, "\0")], receive_retained=True))

    async def add(self, add: own.Add) -> bool:
        """Whether filters are added; with a start, when all of the past has come."""
        if self._stream is None or self._stream.status is not None:
            self._stream = self.channel.call(f"{OWN}Subscribe", self._metadata, is_last=False)
            hello = own.SubscribeRequest(open=own.Open(client_id=self._client_id))
            self._stream.send(hello.SerializeToString())
        request_id = next(self._numbers)
        self._stream.send(own.SubscribeRequest(request_id=request_id, add=add).SerializeToString())
        while (data := await self._stream.take()) is not None:
            event = own.SubscribeEvent.FromString(data)
            self._note(event)
            answer = getattr(event, event.WhichOneof("event") or "")
            if getattr(answer, "request_id", None) == request_id:
                if isinstance(answer, own.Added) and answer.replay_started:
                    continue
                return not isinstance(answer, own.Refused)
        return False

    def _note(self, event: own.SubscribeEvent) -> None:
        self.withdrawn += event.withdrawn.filters
        self.cursor = event.delivery.cursor or self.cursor
        self.session_id = event.opened.session_id or self.session_id
        for run in event.delivery.runs:
            self._events += [(run.topic, payload) for payload in run.payloads]

    async def heard(self) -> list[Heard]:
        await self.fence()
        for data in [] if self._stream is None else self._stream.take_all():
            self._note(own.SubscribeEvent.FromString(data))
        heard, self._events = self._events, []
        return heard

    async def pry(self) -> list[Heard]:
        """The past of a few topics, and why nobody got a message of theirs; some others the next time."""
        found: list[Heard] = []
        other = OwnVisitor(self.channel, self._metadata, self._client_id, self._places)
        for topic in (next(self._places) for _ in range(PLACES_AT_ONCE)):
            await other.add(own.Add(filters=[topic], last=LAST))
            status, _ = await self.ask(f"{OWN}Why", own.WhyRequest(topic=topic, sequence=1))
            if status is Status.OK:
                found.append((topic, b""))
        found += await other.heard()
        other.stop()
        return found

    def stop(self) -> None:
        """Listen no more."""
        if self._stream is not None:
            self._stream.cancel()


class CallEntrance:
    """One of the services, by one of the ports."""

    abilities = Ability.EXACT_NAMES | Ability.FILTERS | Ability.SHARES | Ability.VALUES

    def __init__(
        self, visitor: type[Any], places: Iterator[str], *, scheme: str = "grpc", in_words: bool = False
    ) -> None:
        """Args:
        places: topics whose past visitors pry into, without end.
        in_words: the name and the password stand in the metadata as they are.
        """
        self._visitor = visitor
        self._places = places
        self._scheme = scheme
        self._metadata_of = words_of if in_words else authorization_of
        self._channels: list[Channel] = []
        if in_words:
            self.abilities |= Ability.LONE_PASSWORD

    async def enter(
        self,
        server: RunningServer,
        credentials: Credentials,
        client_id: str = "",
        *,
        will: Heard | None = None,
        stays: bool = False,
    ) -> Any:
        """Try to make any call at all."""
        channel = await self.open(server)
        visitor = self._visitor(channel, self._metadata_of(credentials), client_id, self._places)
        return visitor if await visitor.is_let_in() else None

    async def open(self, server: RunningServer) -> Channel:
        """A connection, on which nobody has said anything."""
        context = careless("h2") if self._scheme == "grpcs" else None
        channel = await Channel.open(server.port_of(self._scheme), context)
        self._channels.append(channel)
        return channel

    async def close(self) -> None:
        for channel in self._channels:
            channel.close()
        await asyncio.sleep(0)
