"""Penstock over HTTP, for programs that are not asynchronous: publish, look around, read the log, stage rows.

Everything here waits for its answer. A client may be used by several threads, whose requests then wait for
one another; for speed each has one of its own.
"""

import ssl
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import UNSET

from penstock.client.answers import History, Message, NewMessage, Receipt, T, read
from penstock.client.log_calls import LogCalls
from penstock.client.requests import Parameter, Requests, part_of
from penstock.client.stage_calls import StageCalls
from penstock.wire.jsonvalue import BYTES_KEY

_PAGE = 1_000


class _Receipts(msgspec.Struct):
    receipts: list[Receipt]


class _RetainedPage(msgspec.Struct):
    retained: list[Message]
    next: str | None


class HttpClient(LogCalls, StageCalls):
    """A client of one server's HTTP port.

    Args:
        address: `http://host:8080` or `https://host:8443`, with a path below which the server is, if any.
        user: a name of the server's password file; without one, whoever may come without.
        client_id: the name that messages and rights know this client by.
        timeout: seconds that the server may be silent while it is asked.
        tls: what to trust with `https`; default: what the system trusts.
    """

    def __init__(
        self,
        address: str = "http://127.0.0.1:8080",
        user: str | None = None,
        password: str | None = None,
        *,
        client_id: str = "",
        timeout: float = 30.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._requests = Requests(address, user, password, client_id=client_id, timeout=timeout, tls=tls)

    def __enter__(self) -> "HttpClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection. A client that is used again opens another one."""
        self._requests.close()

    # Publishing

    def publish(
        self,
        topic: str,
        data: Any = UNSET,
        *,
        payload: str | bytes | None = None,
        qos: int = 1,
        retain: bool = False,
        ttl_ms: int | None = None,
        content_type: str | None = None,
        correlation_id: str | None = None,
        response_topic: str | None = None,
        message_id: str | None = None,
        properties: dict[str, str | list[str]] | None = None,
    ) -> Receipt:
        """Publish one message and wait until the server has it, on disk if it keeps it there.

        With a `message_id` it is safe to try again after a `ConnectionLost`: the message is published once.
        """
        if payload is not None and data is not UNSET:
            raise ValueError("a message has data or a payload, not both")
        message = NewMessage(
            topic=topic,
            data=data if payload is None else _data_of(payload),
            payload=payload if isinstance(payload, str) else UNSET,
            qos=qos,
            retain=retain,
            ttl_ms=ttl_ms,
            content_type=content_type,
            correlation_id=correlation_id,
            response_topic=response_topic,
            message_id=message_id,
            properties=properties,
        )
        return self._publish(message, Receipt, may_repeat=message_id is not None)

    def publish_many(self, messages: Iterable[NewMessage | Mapping[str, Any]]) -> list[Receipt]:
        """Publish messages in one request: all of them, or none if one of them is refused."""
        batch = list(messages)
        is_repeatable = all(
            (each.get("message_id") if isinstance(each, Mapping) else each.message_id) is not None
            for each in batch
        )
        return self._publish(batch, _Receipts, may_repeat=is_repeatable).receipts

    def _publish(self, content: object, kind: type[T], *, may_repeat: bool) -> T:
        body = msgspec.json.encode(content)
        answer = self._requests.send("POST", "/api/v1/publish", body=body, may_repeat=may_repeat)
        return read(answer.body, kind)

    # Looking around

    def topics(self, search: str | None = None, filter: str | None = None) -> Iterator[dict[str, Any]]:
        """Every topic whose name holds a text, or matches a filter; sorted by name."""
        return self._pages("topics", search=search, filter=filter)

    def messages(
        self,
        topic: str,
        *,
        after: str | None = None,
        after_sequence: int | None = None,
        start: datetime | str | None = None,
        last: int | None = None,
        limit: int | None = None,
    ) -> History:
        """Messages of a topic: after a cursor, a sequence or a time, or the last so many."""
        where = {"after": after, "after_sequence": after_sequence, "from": start, "last": last}
        asked = {"topic": topic, **where, "limit": limit}  # in the query, as a path cannot name every topic
        return read(self._requests.send("GET", "/api/v1/messages", asked).body, History)

    def retained(self, filter: str | None = None) -> Iterator[Message]:
        """The last values of topics, of those that match a filter; sorted by topic."""
        after = None
        while True:
            asked = {"filter": filter, "after": after, "limit": _PAGE}
            page = read(self._requests.send("GET", "/api/v1/retained", asked).body, _RetainedPage)
            yield from page.retained
            after = page.next
            if after is None:
                return

    def retained_value(self, topic: str) -> bytes:
        """The last value of one topic, as it was published."""
        return self._requests.send("GET", "/api/v1/retained", {"topic": topic}, accept="*/*").body

    def clients(self, search: str | None = None, connected: bool | None = None) -> Iterator[dict[str, Any]]:
        """Every client whose id holds a text, or that is connected or not; sorted by id."""
        return self._pages("clients", search=search, connected=connected)

    def client(self, client_id: str) -> dict[str, Any]:
        """Everything that is known of one client."""
        return self.get(f"/api/v1/clients/{quote(client_id, safe='')}")

    def disconnect(self, client_id: str) -> bool:
        """End the connection of a client, whose session stays; False if it had none."""
        path = f"/api/v1/clients/{quote(client_id, safe='')}"
        return bool(part_of(self._requests.send("DELETE", path).value(), "disconnected"))

    def slow(self) -> list[dict[str, Any]]:
        """Who is slow, or was until a while ago."""
        return list(part_of(self.get("/api/v1/slow"), "slow"))

    def why(self, topic: str, sequence: int, client: str | None = None) -> dict[str, Any]:
        """What became of a message, for one client or for all that should have got it."""
        return self.get("/api/v1/why", topic=topic, sequence=sequence, client=client)

    def drops(
        self, topic: str | None = None, client: str | None = None, reason: str | None = None
    ) -> Iterator[dict[str, Any]]:
        """What is recorded as not delivered, also of one topic, client or reason; the latest first."""
        return self._pages("drops", topic=topic, client=client, reason=reason)

    def config(self) -> dict[str, Any]:
        """The settings that the server goes by, and where each of them is from."""
        return self.get("/api/v1/config")

    def health(self) -> dict[str, Any]:
        """How the server is; it says so itself if it is not well."""
        return self._requests.send("GET", "/health", allowed=(503,)).value()

    def ready(self) -> bool:
        """Whether the server takes new work."""
        return self._requests.send("GET", "/ready", allowed=(503,)).status < 400

    def metrics(self, topics: Sequence[str] = (), *, limit: int | None = None) -> dict[str, Any]:
        """The server's figures: of so many topics, those with most messages, or of up to 100 by name."""
        return self.get("/metrics", topic=topics, limit=limit)

    def get(self, path: str, **parameters: Parameter) -> dict[str, Any]:
        """The JSON object that a GET answers, for whatever has no method of its own."""
        return self._requests.send("GET", path, parameters).value()

    def _pages(self, kind: str, **parameters: Parameter) -> Iterator[dict[str, Any]]:
        """Everything of one kind, asked for page by page."""
        after = None
        while True:
            page = self.get(f"/api/v1/{kind}", after=after, limit=_PAGE, **parameters)
            yield from part_of(page, kind)
            after = part_of(page, "next")
            if after is None:
                return


def _data_of(payload: str | bytes) -> Any:
    """A payload of bytes as JSON has it; text has a key of its own."""
    if isinstance(payload, str):
        return UNSET
    return {BYTES_KEY: b64encode(payload).decode()}
