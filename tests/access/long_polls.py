"""The streams door as an intruder meets it: whoever may subscribe to a topic receives from it.

Streams have names and no filters. What is published while a stream exists waits in it for the visitor.
"""

from base64 import b64encode
from collections.abc import Iterator
from itertools import islice
from typing import Any
from uuid import uuid4

import httpx
from msgspec import Raw, json

from penstock.wire.json_values import payload_of
from tests.access.entrances import NULL, Ability, Heard
from tests.access.web import PLACES_AT_ONCE, HttpEntrance, HttpVisitor

SEND, RECEIVE = "/api/v1/streams/send", "/api/v1/streams/receive"
STRANGER, NOTHING_YET = 401, 424


class StreamVisitor(HttpVisitor):
    """Sends and receives."""

    def __init__(self, http: httpx.AsyncClient, places: Iterator[str]) -> None:
        super().__init__(http, places)
        self._streams: list[str] = []
        self._early: list[Heard] = []  # was there already

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> bool:
        """Send bytes; nothing is retained here."""
        message = {"$bytes": b64encode(payload).decode()}
        body = {"streamId": topic.replace(NULL, "\0"), "messageUuid": str(uuid4()), "message": message}
        answer = await self._send("POST", SEND, json=body)
        return answer is not None and answer.status_code == 200

    async def subscribe(self, filter: str) -> bool:
        """Wait at a stream for a moment, so that it is there from now on."""
        answer = await self._receive(filter.replace(NULL, "\0"), timeout="1ms")
        if answer is None or answer.status_code not in (200, NOTHING_YET):
            return False
        self._streams.append(filter)
        self._early += _message_of(filter, answer)
        return True

    async def heard(self) -> list[Heard]:
        """All that is in the streams which were granted."""
        heard, self._early = self._early, []
        for stream in self._streams:
            while found := _message_of(stream, await self._receive(stream, timeout="0")):
                heard += found
        return heard

    async def pry(self) -> list[Heard]:
        """Whatever else can be had; of a message, where it is."""
        found: list[Heard] = []
        for topic in islice(self._places, PLACES_AT_ONCE):
            for asked in ({}, {"readFromDB": "true"}, {"readFromDB": "true", "limit": "10"}):
                answer = await self._receive(topic, timeout="0", **asked)
                if answer is not None and answer.status_code == STRANGER:
                    return found  # who tries again and again is not even asked
                if answer is not None and answer.status_code == 200:
                    found.append((topic, b""))
        return found

    async def _receive(self, stream: str, **asked: Any) -> httpx.Response | None:
        return await self._send("GET", RECEIVE, params={"streamId": stream, **asked})


class StreamEntrance(HttpEntrance):
    """The streams door."""

    abilities = Ability.CLIENT_IDS | Ability.EXACT_NAMES
    visitor = StreamVisitor


def _message_of(stream: str, answer: httpx.Response | None) -> list[Heard]:
    """The message that was received, if there is one."""
    if answer is None or answer.status_code != 200:
        return []
    return [
        (
            stream,
            payload_of(Raw(json.encode(answer.json()["message"])), answer.headers.get("penstock-encoding")),
        )
    ]
