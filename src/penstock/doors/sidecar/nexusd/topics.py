"""GetTopics and GetPeers: what there is, as far as the caller may know."""

import asyncio
from collections.abc import Iterator
from itertools import islice

from penstock.common.topics import ALL_LEVELS
from penstock.core.access.identity import Identity
from penstock.doors.sidecar.nexusd.context import Sidecar
from penstock.doors.sidecar.transport.method import Call, EndCause, Handler
from penstock.model import is_public
from penstock.wire.sidecar.messages.nexusd import (
    GetPeersRequest,
    GetPeersResponse,
    GetTopicsRequest,
    GetTopicsResponse,
)

NAMES_A_SLICE = 2_000
"""Topics listed in one turn of the loop."""
RESPONSE_BYTES = 3 * 1024 * 1024
"""Approximate limit of a response: clients accept 4 MiB by default."""
ENTRY_BYTES = 16
"""Largest size of an entry beside its name."""


class TopicMethods:
    """GetTopics and GetPeers."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar
        self._broker = sidecar.broker
        self._tasks: set[asyncio.Task[None]] = set()

    def get_peers(self, call: Call, request: GetPeersRequest) -> None:
        """There are none: this is one server."""
        call.respond(GetPeersResponse().SerializeToString())

    def get_topics(self, call: Call, request: GetTopicsRequest) -> None:
        """Topics that the caller may read, subscribed ones first, as many as fit into a response."""
        task = self._sidecar.loop.create_task(self._respond(call, has_counts=request.include_counts))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        call.handler = _Listing(task)

    async def _respond(self, call: Call, *, has_counts: bool) -> None:
        assert call.identity is not None
        try:
            topics = await self._list(call.identity, has_counts=has_counts)
        except Exception:
            self._sidecar.fail(call)
        else:
            call.respond(GetTopicsResponse(topics=topics).SerializeToString())

    async def _list(self, who: Identity, *, has_counts: bool) -> dict[str, int]:
        topics: dict[str, int] = {}
        room_bytes = RESPONSE_BYTES
        names = self._names(who)
        while room_bytes > 0 and (some := list(islice(names, NAMES_A_SLICE))):
            for name in some:
                if name is not None and name not in topics and room_bytes > 0:
                    room_bytes -= len(name.encode()) + ENTRY_BYTES
                    topics[name] = self._broker.subscriber_count(name) if has_counts else 0
            await asyncio.sleep(0)
        return topics

    def _names(self, who: Identity) -> Iterator[str | None]:
        """Iterate over the topics that may be read; None for each that may not."""
        access = self._broker.access
        may_read_all = access.may_subscribe(who, ALL_LEVELS)
        for name in (*self._broker.subscribed_names(), *self._broker.topics):
            is_listed = is_public(name) and (may_read_all or access.may_read(who, name))
            yield name if is_listed else None


class _Listing(Handler):
    """A call whose response is being built."""

    __slots__ = ("_task",)

    def __init__(self, task: "asyncio.Task[None]") -> None:
        self._task = task

    def ended(self, cause: EndCause) -> None:
        """The call was cancelled."""
        self._task.cancel()
