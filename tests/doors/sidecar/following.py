"""A client that follows topics whatever happens to its connections, and checks each message."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

from penstock.wire.sidecar.messages import nexusd
from tests.doors.sidecar.calling import Events, Stub

OVER = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.ABORTED})
"""How streams end whose server or connection is gone, or that were resumed elsewhere."""


class Follower:
    """Keeps the last sequence of each topic, and resumes with it."""

    def __init__(self, address: Callable[[], str], *topics: str) -> None:
        self._address = address
        self._topics = topics
        self.id = ""
        self.last: dict[str, int] = {}
        self.payloads: list[bytes] = []
        self.resumptions = 0
        self.gaps: list[nexusd.SubscriptionInfo] = []
        self.faults: list[str] = []

    async def follow(self) -> None:
        """Go on for ever; what is wrong is in `faults`."""
        while True:
            async with grpc.aio.insecure_channel(self._address()) as channel:
                try:
                    await self._read(Stub(channel))
                except grpc.aio.AioRpcError as error:
                    if error.code() not in OVER:
                        self.faults.append(f"{error.code()} {error.details()}")
                        return
            await asyncio.sleep(0.01)

    async def _read(self, stub: Stub) -> None:
        events = Events(self._begin(stub))
        while True:
            event = await events.call.read()
            if event is grpc.aio.EOF:
                return
            self._take(event)

    def _begin(self, stub: Stub) -> Any:
        if not self.id:
            return stub.subscribe(nexusd.SubscribeRequest(topics=self._topics, client_id="follower"))
        request = nexusd.ResumeSubscribeRequest(
            subscription_id=self.id,
            topics=self._topics,
            last_sequence_per_topic=self.last,
            gap_recovery_mode=nexusd.GAP_RECOVERY_REPLAY_BUFFER,
        )
        return stub.resume(request)

    def _take(self, event: nexusd.MessageEvent) -> None:
        kind = event.WhichOneof("event") or ""
        if kind == "subscription_info":
            self.resumptions += bool(self.id)
            self.id = event.subscription_info.subscription_id
            if event.subscription_info.gap_detected:
                self.gaps.append(event.subscription_info)
        elif kind in ("message", "replay_message"):
            self._take_message(getattr(event, kind))

    def _take_message(self, message: nexusd.Message) -> None:
        topic, sequence = message.topic, message.sequence_number
        if sequence != self.last.get(topic, 0) + 1 and not self.gaps:
            self.faults.append(f"{topic}: {sequence} after {self.last.get(topic, 0)}")
        self.last[topic] = sequence
        self.payloads.append(message.payload)
