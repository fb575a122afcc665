"""The web door as an intruder meets it: requests with credentials, each of them a new try.

There is no subscription here: whoever asks for the log by a filter needs the right to subscribe to it, and
hears what was published since. Beside that a visitor pries wherever something may be read.
"""

from base64 import b64encode
from collections.abc import Iterator
from itertools import islice
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa
from msgspec import Raw, json

from penstock.wire.json_values import payload_of
from tests.access.entrances import NULL, Ability, Credentials, Heard
from tests.support.servers import RunningServer

STATEMENT = b"penstock.statement"
LEVELS_AT_ONCE = 4
PLACES_AT_ONCE = 4
"""Topics whose history a visitor tries to read, at each look; others the next time."""


class HttpVisitor:
    """A caller of the web door."""

    is_known = False

    def __init__(self, http: httpx.AsyncClient, places: Iterator[str]) -> None:
        self._http = http
        self._cursors: dict[str, str] = {}  # how far each filter was read
        self._new: list[str] = []  # filters whose values were not looked at yet
        self._places = places

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> bool:
        """Publish bytes, at QoS 1."""
        asked = {"topic": topic.replace(NULL, "\0")}
        headers = {"Penstock-Retain": "true"} if retain else {}
        answer = await self._send("POST", "/api/v1/publish", params=asked, content=payload, headers=headers)
        return answer is not None and answer.status_code == 200

    async def subscribe(self, filter: str) -> bool:
        """Ask for a place in the log by a filter."""
        asked = {"filter": filter.replace(NULL, "\0")}
        answer = await self._send("GET", "/api/v1/log/position", params=asked)
        if answer is None or answer.status_code != 200:
            return False
        self._cursors[filter] = answer.json()["cursor"]
        self._new.append(filter)
        return True

    async def heard(self) -> list[Heard]:
        """What the log has since the last call of everything that was granted; at first also values."""
        filters, self._new = self._new, []
        heard = [value for filter in filters for value in await self._retained(filter)]
        for filter, cursor in self._cursors.items():
            answer = await self._send("GET", "/api/v1/log", params={"after": cursor, "filter": filter})
            if answer is not None and answer.status_code == 200:
                rows, self._cursors[filter] = rows_of(answer.content)
                heard += rows
        return heard

    async def pry(self) -> list[Heard]:
        """Whatever can be had without having asked for a filter; of a topic's name, the name."""
        found: list[Heard] = []
        for asked in ({}, {"filter": "$SYS/#"}, {"search": "$"}, {"search": "secret"}):
            page = await self._page("/api/v1/topics", "topics", asked)
            found += [(topic["name"], b"") for topic in page]
        found += [(topic, b"") for topic in await self._tree()]
        stats = await self._send("GET", "/stats")
        counted = stats.json()["topics"] if stats is not None and stats.status_code == 200 else ()
        found += [(name, b"") for name in (*await self.list_topics(), *counted)]
        found += await self._retained(None)
        for topic in islice(self._places, PLACES_AT_ONCE):
            path = quote(topic, safe="")
            page = await self._page(f"/api/v1/topics/{path}/messages", "messages", {})
            found += [(message["topic"], b"") for message in page]
            answer = await self._send("GET", f"/api/v1/retained/{path}")
            if answer is not None and answer.status_code == 200:
                found.append((topic, answer.content))
        return found

    async def _tree(self) -> list[str]:
        """The topics of the first two levels."""
        levels = await self._page("/api/v1/topics/tree", "levels", {"limit": "1000"})
        for level in levels[:LEVELS_AT_ONCE]:
            asked = {"limit": "1000", "under": level["topic"]}
            levels = levels + await self._page("/api/v1/topics/tree", "levels", asked)
        return [level["topic"] for level in levels if level["is_topic"]]

    async def list_topics(self) -> list[str]:
        """The topics that one may know of."""
        answer = await self._send("GET", "/topics")
        return answer.json() if answer is not None and answer.status_code == 200 else []

    async def make_topic(self, name: str) -> int:
        """Make a topic; answer the status."""
        answer = await self._send("POST", "/topics", json={"name": name})
        return 0 if answer is None else answer.status_code

    async def delete_topic(self, name: str) -> int:
        """Delete a topic; answer the status."""
        answer = await self._send("DELETE", f"/topics/{quote(name, safe='')}")
        return 0 if answer is None else answer.status_code

    async def _retained(self, filter: str | None) -> list[Heard]:
        page = await self._page("/api/v1/retained", "retained", {} if filter is None else {"filter": filter})
        return [
            (value["topic"], payload_of(Raw(json.encode(value["data"])), value.get("encoding")))
            for value in page
        ]

    async def _page(self, path: str, key: str, asked: dict[str, str]) -> list[dict[str, Any]]:
        answer = await self._send("GET", path, params={"limit": "10000", **asked})
        return answer.json()[key] if answer is not None and answer.status_code == 200 else []

    async def _send(self, method: str, path: str, **asked: Any) -> httpx.Response | None:
        """An answer; None if the server prefers to end the connection."""
        try:
            return await self._http.request(method, path, **asked)
        except (httpx.RemoteProtocolError, httpx.InvalidURL):
            return None

    async def leave(self) -> None:
        await self._http.aclose()

    vanish = leave


class HttpEntrance:
    """The web door, by a header or by none."""

    abilities = Ability.CLIENT_IDS | Ability.EXACT_NAMES | Ability.TOPICS | Ability.FILTERS | Ability.VALUES
    visitor = HttpVisitor

    def __init__(self, places: Iterator[str]) -> None:
        """Args:
        places: topics whose history visitors pry into, without end.
        """
        self._places = places
        self._clients: list[httpx.AsyncClient] = []

    async def enter(
        self,
        server: RunningServer,
        credentials: Credentials,
        client_id: str = "",
        *,
        will: Heard | None = None,
        stays: bool = False,
    ) -> HttpVisitor | None:
        """Try to see anything at all."""
        headers = {b"X-Client-Id": client_id.encode()} if client_id else {}
        if credentials.user is not None:
            user = credentials.user.replace(NULL, "\0").encode()
            headers[b"Authorization"] = b"Basic " + b64encode(user + b":" + (credentials.password or b""))
        address = f"http://127.0.0.1:{server.port_of('http')}"
        client = httpx.AsyncClient(base_url=address, headers=headers, timeout=20)
        self._clients.append(client)
        visitor = self.visitor(client, self._places)
        answer = await visitor._send("GET", "/api/v1")
        return visitor if answer is not None and answer.status_code == 200 else None

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


def rows_of(stream: bytes) -> tuple[list[Heard], str]:
    """The messages of an answer, and where the next one begins."""
    rows: list[Heard] = []
    with pa.ipc.open_stream(stream) as batches:
        metadata: Any = None
        while True:
            try:
                batch, metadata = batches.read_next_batch_with_custom_metadata()
            except StopIteration:
                break
            topics, payloads = (batch.column(name).to_pylist() for name in ("topic", "payload"))
            rows += zip(topics, payloads, strict=True)
    return rows, json.decode(metadata[STATEMENT])["next"]
