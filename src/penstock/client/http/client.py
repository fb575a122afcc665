"""Blocking HTTP client: publish, inspect a server, read its log, stage rows.

Threads may share a client; their requests then wait for one another. For speed, use one client per thread.
"""

import ssl
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET

from penstock.client.http.events import EventRequests
from penstock.client.http.log import LogRequests
from penstock.client.http.stages import StageRequests
from penstock.client.http.transport import Parameter, T, Transport, decode_body, require_key
from penstock.client.messages import History, Message, NewMessage, Receipt
from penstock.client.tls import TlsOption
from penstock.wire.json_values import BYTES_KEY

_PAGE = 1_000


class _Receipts(msgspec.Struct):
    receipts: list[Receipt]


class _RetainedPage(msgspec.Struct):
    retained: list[Message]
    next: str | None


class HttpClient(EventRequests, LogRequests, StageRequests):
    """Client of a server's HTTP port.

    Args:
        address: `http://host:8080` or `https://host:8443`, with the path of a proxy, if any.
        user: name in the server's password file; without one the client is anonymous.
        client_id: name of this client in messages and access rules.
        timeout: limit in seconds for the server to respond or continue.
        tls: for `https`: a `Tls`, a file with trusted authorities, or an `ssl.SSLContext`; default: the
            authorities of the system.
    """

    def __init__(
        self,
        address: str = "http://127.0.0.1:8080",
        user: str | None = None,
        password: str | None = None,
        *,
        client_id: str = "",
        timeout: float = 30.0,
        tls: ssl.SSLContext | TlsOption = None,
    ) -> None:
        self._transport = Transport(address, user, password, client_id=client_id, timeout=timeout, tls=tls)

    def __enter__(self) -> "HttpClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next call opens another one."""
        self._transport.close()

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
        """Publish one message and wait for the receipt; a durable server stores it first.

        With a `message_id` a retry after `ConnectionLost` is safe: the message is published once.
        """
        if payload is not None and data is not UNSET:
            raise ValueError("give either data or payload, not both")
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
        """Publish messages in one request: all of them, or none if one is refused."""
        batch = list(messages)
        is_idempotent = all(
            (each.get("message_id") if isinstance(each, Mapping) else each.message_id) is not None
            for each in batch
        )
        return self._publish(batch, _Receipts, may_repeat=is_idempotent).receipts

    def _publish(self, content: object, kind: type[T], *, may_repeat: bool) -> T:
        body = msgspec.json.encode(content)
        response = self._transport.send("POST", "/api/v1/publish", body=body, may_repeat=may_repeat)
        return decode_body(response.body, kind)

    # Inspection

    def topics(self, search: str | None = None, filter: str | None = None) -> Iterator[dict[str, Any]]:
        """Topics whose name contains a text or matches a filter, sorted by name."""
        return self._pages("topics", search=search, filter=filter)

    def tree(self, under: str | None = None) -> Iterator[dict[str, Any]]:
        """Levels of the topic tree below a path, or the first ones, sorted by name."""
        return self._pages("topics/tree", key="levels", under=under)

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
        """Messages of a topic: after a cursor, a sequence or a time, or the last ones."""
        where = {"after": after, "after_sequence": after_sequence, "from": start, "last": last}
        query = {"topic": topic, **where, "limit": limit}  # a path could not contain every topic
        return decode_body(self._transport.send("GET", "/api/v1/messages", query).body, History)

    def retained(self, filter: str | None = None) -> Iterator[Message]:
        """Retained messages, of the topics that match a filter, sorted by topic."""
        after = None
        while True:
            query = {"filter": filter, "after": after, "limit": _PAGE}
            page = decode_body(self._transport.send("GET", "/api/v1/retained", query).body, _RetainedPage)
            yield from page.retained
            after = page.next
            if after is None:
                return

    def retained_value(self, topic: str) -> bytes:
        """Payload of the retained message of a topic."""
        return self._transport.send("GET", "/api/v1/retained", {"topic": topic}, accept="*/*").body

    def remove_retained(self, topic: str) -> None:
        """Remove the retained message of a topic."""
        self._transport.send("DELETE", "/api/v1/retained", {"topic": topic})

    def clients(self, search: str | None = None, connected: bool | None = None) -> Iterator[dict[str, Any]]:
        """Clients whose id contains a text, or by connection state, sorted by id."""
        return self._pages("clients", search=search, connected=connected)

    def client(self, client_id: str) -> dict[str, Any]:
        """All details of one client."""
        return self.get("/api/v1/client", client_id=client_id)

    def disconnect(self, client_id: str, *, end_session: bool = False) -> bool:
        """Disconnect a client; False if it was not connected.

        Args:
            end_session: end its session, too, connected or not; otherwise the session is kept.
        """
        query = {"client_id": client_id, "end_session": end_session or None}
        return bool(
            require_key(self._transport.send("DELETE", "/api/v1/client", query).value(), "disconnected")
        )

    def slow(self) -> list[dict[str, Any]]:
        """Clients that are slow, or were recently."""
        return list(require_key(self.get("/api/v1/slow"), "slow"))

    def why(self, topic: str, sequence: int, client: str | None = None) -> dict[str, Any]:
        """Why a client did or did not get a message; without a client, for all of them."""
        return self.get("/api/v1/why", topic=topic, sequence=sequence, client=client)

    def drops(
        self, topic: str | None = None, client: str | None = None, reason: str | None = None
    ) -> Iterator[dict[str, Any]]:
        """Messages recorded as not delivered, also by topic, client or reason; latest first."""
        return self._pages("drops", topic=topic, client=client, reason=reason)

    def config(self) -> dict[str, Any]:
        """Settings of the server, and the source of each."""
        return self.get("/api/v1/config")

    def me(self) -> dict[str, Any]:
        """User and rights of this client, as the server sees them."""
        return self.get("/api/v1/me")

    def history(self) -> dict[str, Any]:
        """Rates of the last hour, a point every ten seconds."""
        return self.get("/api/v1/history")

    def reload(self) -> dict[str, Any]:
        """Make the server read its settings and files again; returns what was applied and what waits.

        Raises:
            HttpRefused: something in them is wrong (409), and nothing has changed.
        """
        return self._transport.send("POST", "/api/v1/reload", body=b"").value()

    def health(self) -> dict[str, Any]:
        """Health report of the server, also an unhealthy one."""
        return self._transport.send("GET", "/health", allowed=(503,)).value()

    def ready(self) -> bool:
        """Return whether the server accepts new work."""
        return self._transport.send("GET", "/ready", allowed=(503,)).status < 400

    def metrics(self, topics: Sequence[str] = (), *, limit: int | None = None) -> dict[str, Any]:
        """Statistics of the server, and of topics: the `limit` busiest ones, or up to 100 by name."""
        return self.get("/metrics", topic=topics, limit=limit)

    def get(self, path: str, **parameters: Parameter) -> dict[str, Any]:
        """JSON object of any GET request, for routes without a method of their own."""
        return self._transport.send("GET", path, parameters).value()

    def _pages(
        self, kind: str, *, key: str | None = None, **parameters: Parameter
    ) -> Iterator[dict[str, Any]]:
        """All entries of a list, requested page by page; `key` is its name in a response, if another."""
        after = None
        while True:
            page = self.get(f"/api/v1/{kind}", after=after, limit=_PAGE, **parameters)
            yield from require_key(page, key or kind)
            after = require_key(page, "next")
            if after is None:
                return


def _data_of(payload: str | bytes) -> Any:
    """Bytes as a JSON value; text is sent in a field of its own."""
    if isinstance(payload, str):
        return UNSET
    return {BYTES_KEY: b64encode(payload).decode()}
