"""Inbox of an MQTT client: messages in order, acknowledged when taken, without QoS 2 duplicates."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from msgspec.structs import replace

from penstock.client.errors import ConnectionLost
from penstock.wire.mqtt.packets import Packet, PubAck, PubComp, Publish, PubRec, PubRel
from penstock.wire.mqtt.reasons import InvalidTopicAlias, ProtocolViolation, ReasonCode


class Messages:
    """Received messages; iterate over it, or `receive` one message at a time.

    Iteration ends after the client's own disconnect, and raises `ConnectionLost` after any other end;
    messages that arrived before are delivered first. `accept`, `release` and `end` are for the client.
    """

    def __init__(self, limit: int, aliases_limit: int, reply: Callable[[Packet | None], None]) -> None:
        self._limit = limit
        self._aliases_limit = aliases_limit
        self._aliases: dict[int, str] = {}
        self._reply = reply  # called for each taken message, with its acknowledgement or None
        self._unreleased: dict[int, bool] = {}  # QoS 2 packet ids, and whether their message was taken
        self._waiting: deque[Publish] = deque()
        self._changed = asyncio.Event()
        self._is_ended = False
        self._lost: ConnectionLost | None = None

    def __len__(self) -> int:
        """Number of waiting messages."""
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Return whether the limit of waiting messages is reached."""
        return len(self._waiting) >= self._limit

    def __aiter__(self) -> AsyncIterator[Publish]:
        return self

    async def __anext__(self) -> Publish:
        while not self._waiting:
            if self._lost is not None:
                raise self._lost.with_traceback(None)
            if self._is_ended:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        message = self._waiting.popleft()
        self._reply(self._acknowledgement(message))  # no await: cancellation must not lose the message
        return message

    async def receive(self, timeout: float | None = None) -> Publish:
        """Take the next message.

        Raises:
            ConnectionLost: the connection has ended.
            TimeoutError: no message in time.
        """
        async with asyncio.timeout(timeout):
            try:
                return await anext(self)
            except StopAsyncIteration:
                raise ConnectionLost("disconnected") from None

    def accept(self, publish: Publish) -> None:
        """Queue a message, unless it is a QoS 2 duplicate."""
        publish = self._resolve_alias(publish)
        if publish.qos == 2:
            is_taken = self._unreleased.get(publish.packet_id)
            if is_taken is not None:
                if is_taken:
                    self._reply(PubRec(publish.packet_id))  # MQTT-4.3.3-10
                return
            self._unreleased[publish.packet_id] = False
        self._waiting.append(publish)
        self._changed.set()

    def release(self, pubrel: PubRel) -> None:
        """Complete a QoS 2 message: the server will not send it again."""
        is_known = self._unreleased.pop(pubrel.packet_id, None) is not None
        reason = ReasonCode.SUCCESS if is_known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
        self._reply(PubComp(pubrel.packet_id, reason))

    def end(self, lost: ConnectionLost | None) -> None:
        """End the iteration after the waiting messages, with an error if there is one."""
        self._is_ended = True
        self._lost = lost
        self._changed.set()

    def _acknowledgement(self, message: Publish) -> Packet | None:
        if message.qos == 2:
            self._unreleased[message.packet_id] = True
            return PubRec(message.packet_id)
        return PubAck(message.packet_id) if message.qos else None

    def _resolve_alias(self, publish: Publish) -> Publish:
        alias = publish.properties.topic_alias
        if alias is None:
            return publish
        if not 0 < alias <= self._aliases_limit:
            raise InvalidTopicAlias(f"topic alias {alias}")
        if publish.topic:
            self._aliases[alias] = publish.topic
            return publish
        if alias not in self._aliases:
            raise ProtocolViolation(f"topic alias {alias} is not defined")
        return replace(publish, topic=self._aliases[alias])
