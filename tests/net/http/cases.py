"""Bytes that a listener must make sense of, and bytes that it must refuse: one catalogue of each."""

from typing import NamedTuple

HOST = b"Host: localhost\r\n"


class Good(NamedTuple):
    """Bytes that are answered."""

    name: str
    data: bytes
    statuses: tuple[int, ...] = (200,)
    body: bytes = b""
    """What the route got as the body of the first request."""


class Bad(NamedTuple):
    """Bytes that are refused, and end the connection."""

    name: str
    data: bytes
    status: int = 400


def head(*lines: bytes, start: bytes = b"GET /hot HTTP/1.1") -> bytes:
    return b"\r\n".join([start, b"Host: localhost", *lines, b"", b""])


def posted(*lines: bytes) -> bytes:
    return head(*lines, start=b"POST /hot HTTP/1.1")


CHUNKED = posted(b"Transfer-Encoding: chunked")

GOOD = [
    Good("plain", head()),
    Good("blank lines before", b"\r\n\r\n" + head()),
    Good("two in one", head() * 2, (200, 200)),
    Good("no host in 1.0", b"GET /hot HTTP/1.0\r\n\r\n"),
    Good("host with a port", b"GET /hot HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n"),
    Good("host of IPv6", b"GET /hot HTTP/1.1\r\nhost:[::1]:8080\r\n\r\n"),
    Good("empty header", head(b"X-Empty:")),
    Good("header in latin-1", head(b"X-Name: \xe9t\xe9")),
    Good("repeated header", head(b"Accept: a", b"Accept: b")),
    Good("query", head(start=b"GET /hot?a=%2F&b HTTP/1.1")),
    Good("escaped letters", head(start=b"GET /%68o%74 HTTP/1.1")),
    Good("absolute target", head(start=b"GET http://localhost:8080/hot?x HTTP/1.1")),
    Good("absolute target of the application", head(start=b"GET http://localhost HTTP/1.1")),
    Good("escaped slash", head(start=b"GET /app/a%2Fb HTTP/1.1")),
    Good("double slash", head(start=b"GET /app//b HTTP/1.1")),
    Good("escaped hash", head(start=b"GET /app/%23 HTTP/1.1")),
    Good("dots in a name", head(start=b"GET /app/a..b/... HTTP/1.1")),
    Good("body", posted(b"Content-Length: 3") + b"abc", body=b"abc"),
    Good("body and space", posted(b"Content-Length:  3 ") + b"abc", body=b"abc"),
    Good("empty body", posted(b"Content-Length: 0")),
    Good("no body", posted()),
    Good("body of GET", head(b"Content-Length: 3") + b"abc" + head(), (200, 200), b"abc"),
    Good("chunks", CHUNKED + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", body=b"abcde"),
    Good(
        "chunks in capitals",
        posted(b"TRANSFER-ENCODING: Chunked") + b"A\r\n0123456789\r\n0\r\n\r\n",
        body=b"0123456789",
    ),
    Good("chunk extension", CHUNKED + b"3;a=b\r\nabc\r\n0\r\n\r\n", body=b"abc"),
    Good(
        "trailers",
        CHUNKED + b"3\r\nabc\r\n0\r\nX-Sum: 1\r\nHost: evil.example\r\n\r\n" + head(),
        (200, 200),
        b"abc",
    ),
    Good("unwanted upgrade", head(b"Connection: Upgrade", b"Upgrade: h2c") + head(), (200, 200)),
    Good(
        "unwanted upgrade with a body",
        posted(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"Content-Length: 3")
        + b"abc"
        + head(),
        (200, 200),
        b"abc",
    ),
    Good(
        "unwanted upgrade with chunks",
        posted(b"Connection: Upgrade", b"Upgrade: h2c", b"Transfer-Encoding: chunked")
        + b"3\r\nabc\r\n0\r\n\r\n"
        + head(),
        (200, 200),
        b"abc",
    ),
    Good(
        "websocket where there is none",
        head(b"Connection: Upgrade", b"Upgrade: websocket") + head(),
        (200, 200),
    ),
    Good("preflight of nobody", head(start=b"OPTIONS /hot HTTP/1.1"), (204,)),
    Good("options for all", head(start=b"OPTIONS * HTTP/1.1"), (204,)),
    Good("close and more", head(b"Connection: close") + head(), (200,)),
]

BAD = [
    Bad("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    Bad("MQTT", b"\x10\x0c\x00\x04MQTT\x05\x02\x00<\x00\x00"),
    Bad("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    Bad("HTTP/0.9", b"GET /hot\r\n\r\n", 505),
    Bad("HTTP/2.0 in words", b"GET /hot HTTP/2.0\r\n" + HOST + b"\r\n", 505),
    Bad("HTTP/1.2", b"GET /hot HTTP/1.2\r\n" + HOST + b"\r\n"),
    Bad("RTSP", b"DESCRIBE /hot RTSP/1.0\r\n" + HOST + b"\r\n", 501),
    Bad("unknown method", head(start=b"FOO /hot HTTP/1.1")),
    Bad("small letters", head(start=b"get /hot HTTP/1.1")),
    Bad("CONNECT", head(start=b"CONNECT localhost:80 HTTP/1.1"), 501),
    Bad("TRACE", head(start=b"TRACE /hot HTTP/1.1"), 501),
    Bad("no host", b"GET /hot HTTP/1.1\r\n\r\n"),
    Bad("two hosts", head(b"Host: localhost")),
    Bad("two different hosts", head(b"Host: evil.example")),
    Bad("length twice", posted(b"Content-Length: 3", b"Content-Length: 3") + b"abc"),
    Bad("lengths that differ", posted(b"Content-Length: 3", b"Content-Length: 4") + b"abc"),
    Bad("list of lengths", posted(b"Content-Length: 3, 3") + b"abc"),
    Bad("length with a sign", posted(b"Content-Length: +3") + b"abc"),
    Bad("negative length", posted(b"Content-Length: -3") + b"abc"),
    Bad("length in hex", posted(b"Content-Length: 0x3") + b"abc"),
    Bad("no length in length", posted(b"Content-Length:") + b"abc"),
    Bad("endless length", posted(b"Content-Length: 99999999999999999999999") + b"abc"),
    Bad("length and chunks", posted(b"Content-Length: 3", b"Transfer-Encoding: chunked") + b"0\r\n\r\n"),
    Bad("chunks and length", posted(b"Transfer-Encoding: chunked", b"Content-Length: 3") + b"0\r\n\r\n"),
    Bad("chunks in 1.0", b"POST /hot HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    Bad("gzip", posted(b"Transfer-Encoding: gzip") + b"abc", 501),
    Bad("gzip, chunked", posted(b"Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n", 501),
    Bad("chunked, gzip", posted(b"Transfer-Encoding: chunked, gzip") + b"0\r\n\r\n"),
    Bad("chunked twice", posted(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked") + b"0\r\n\r\n"),
    Bad("xchunked", posted(b"Transfer-Encoding: xchunked") + b"0\r\n\r\n", 501),
    Bad("chunked with a tab", posted(b"Transfer-Encoding: \x0bchunked") + b"0\r\n\r\n"),
    Bad("chunk size of letters", CHUNKED + b"zz\r\nabc\r\n0\r\n\r\n"),
    Bad("chunk size with a sign", CHUNKED + b"-1\r\nabc\r\n0\r\n\r\n"),
    Bad("chunk size with 0x", CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n"),
    Bad("chunk size and space", CHUNKED + b"3 \r\nabc\r\n0\r\n\r\n"),
    Bad("endless chunk", CHUNKED + b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n"),
    Bad("chunk longer than it says", CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n"),
    Bad("line feeds in chunks", CHUNKED + b"3\nabc\n0\n\n"),
    Bad("line feed in a chunk extension", CHUNKED + b"3;a\nabc\r\n0\r\n\r\n"),
    Bad("length among trailers", CHUNKED + b"0\r\nContent-Length: 5\r\n\r\n"),
    Bad("folded header", b"GET /hot HTTP/1.1\r\n" + HOST + b"X: a\r\n b\r\n\r\n"),
    Bad("folded with a tab", b"GET /hot HTTP/1.1\r\n" + HOST + b"X: a\r\n\tb\r\n\r\n"),
    Bad("space before the first header", b"GET /hot HTTP/1.1\r\n " + HOST + b"\r\n"),
    Bad("bare CR", b"GET /hot HTTP/1.1\r\n" + HOST + b"X: a\rb\r\n\r\n"),
    Bad("bare LF", b"GET /hot HTTP/1.1\n" + HOST + b"\r\n"),
    Bad("bare LF behind a header", b"GET /hot HTTP/1.1\r\nHost: localhost\n\r\n"),
    Bad("NUL in a value", head(b"X: a\0b")),
    Bad("control character in a value", head(b"X: a\x01b")),
    Bad("NUL in a name", head(b"X\0: a")),
    Bad("space behind a name", head(b"X : a")),
    Bad("no name", head(b": a")),
    Bad("no colon", head(b"nonsense")),
    Bad("NUL in the target", head(start=b"GET /hot\0 HTTP/1.1")),
    Bad("letters beyond ASCII in the target", head(start=b"GET /h\xc3\xb6t HTTP/1.1")),
    Bad("tab in the target", head(start=b"GET /h\tt HTTP/1.1")),
    Bad("space in the target", head(start=b"GET /h t HTTP/1.1")),
    Bad("target without a slash", head(start=b"GET hot HTTP/1.1")),
    Bad("fragment", head(start=b"GET /app#x HTTP/1.1")),
    Bad("star", head(start=b"GET * HTTP/1.1")),
    Bad("absolute target of another kind", head(start=b"GET ftp://localhost/hot HTTP/1.1")),
    Bad("parent", head(start=b"GET /app/../hot HTTP/1.1")),
    Bad("parent at the end", head(start=b"GET /app/.. HTTP/1.1")),
    Bad("escaped parent", head(start=b"GET /app/%2e%2E/hot HTTP/1.1")),
    Bad("parent between escaped slashes", head(start=b"GET /app%2F..%2Fhot HTTP/1.1")),
    Bad("escaped NUL", head(start=b"GET /app/%00 HTTP/1.1")),
    Bad("escaped line", head(start=b"GET /app/%0d%0a HTTP/1.1")),
    Bad("bad UTF-8", head(start=b"GET /app/%ff HTTP/1.1")),
    Bad("long form of a slash", head(start=b"GET /app/%c0%af HTTP/1.1")),
    Bad("half an escape", head(start=b"GET /app/%2 HTTP/1.1")),
    Bad("no escape", head(start=b"GET /app/%zz HTTP/1.1")),
    Bad(
        "websocket with a body",
        posted(b"Connection: Upgrade", b"Upgrade: websocket", b"Content-Length: 3") + b"abc",
    ),
    Bad(
        "unwanted upgrade with two lengths",
        posted(b"Connection: Upgrade", b"Upgrade: h2c", b"Content-Length: 3", b"Content-Length: 4") + b"abcd",
    ),
    Bad("two credentials", head(b"Authorization: Basic YTpi", b"Authorization: Basic YTpj")),
    Bad("unknown expectation", posted(b"Expect: tea", b"Content-Length: 3") + b"abc", 417),
]
