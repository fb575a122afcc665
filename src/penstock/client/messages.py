"""The messages that arrive at a client: delivered once, in order, acknowledged when taken."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from msgspec.structs import replace

from penstock.client.errors import ConnectionLost
from penstock.wire.mqtt.packets import Packet, PubAck, PubComp, Publish, PubRec, PubRel
from penstock.wire.mqtt.reasons import InvalidTopicAlias, ProtocolViolation, ReasonCode


class Messages:
    """What the server delivers; iterate over it, or `receive` one message at a time.

    It ends with the client's own disconnect and raises `ConnectionLost` after any other end, in both
    cases after everything that had arrived before. `accept`, `release` and `end` are for the client.
    """

    def __init__(self, limit: int, aliases_limit: int, reply: Callable[[Packet | None], None]) -> None:
        self._limit = limit
        self._aliases_limit = aliases_limit
        self._aliases: dict[int, str] = {}
        self._reply = reply  # called for each message that is taken, with its acknowledgement if it wants one
        self._unreleased: dict[int, bool] = {}  # packet ids at QoS 2, and whether the message was taken
        self._waiting: deque[Publish] = deque()
        self._changed = asyncio.Event()
        self._is_ended = False
        self._lost: ConnectionLost | None = None

    def __len__(self) -> int:
        """How many have arrived and not been taken."""
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether as many wait as may."""
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
        self._reply(
            self._acknowledgement(message)
        )  # no await here: a cancelled taker must not lose a message
        return message

    async def receive(self, timeout: float | None = None) -> Publish:
        """Take the next message.

        Raises:
            ConnectionLost: there will be none, because the connection is over.
            TimeoutError: none came in time.
        """
        async with asyncio.timeout(timeout):
            try:
                return await anext(self)
            except StopAsyncIteration:
                raise ConnectionLost("disconnected") from None

    def accept(self, publish: Publish) -> None:
        """Queue what has arrived, unless it is a repetition."""
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
        """Forget the packet identifier of a message at QoS 2: the server will not repeat it."""
        is_known = self._unreleased.pop(pubrel.packet_id, None) is not None
        reason = ReasonCode.SUCCESS if is_known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
        self._reply(PubComp(pubrel.packet_id, reason))

    def end(self, lost: ConnectionLost | None) -> None:
        """Let takers come to an end after what still waits, with an error if there is one."""
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
