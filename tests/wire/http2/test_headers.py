"""Header fields of requests: what they say, and every rule of RFC 9113 section 8 that they may break."""

import pytest

from penstock.wire.http2 import Field
from penstock.wire.http2.errors import MalformedHead
from penstock.wire.http2.events import RequestHead
from penstock.wire.http2.headers import check_trailers, request_head
from tests.wire.http2.raw_client import POST

METHOD, SCHEME, PATH, AUTHORITY = POST[:4]
LEAST = [METHOD, SCHEME, PATH]
CONNECT: list[Field] = [(b":method", b"CONNECT"), (b":authority", b"example.com:443")]


def test_a_head_says_what_its_fields_say() -> None:
    fields = [*POST, (b"x-one", b"1"), (b"x-one", b"2"), (b"content-length", b"12")]
    assert request_head(fields) == RequestHead(
        b"POST", b"http", b"localhost", b"/service/Method", tuple(fields[4:]), 12
    )


GOOD: dict[str, list[Field]] = {
    "the least there can be": LEAST,
    "pseudo-header fields in another order": [PATH, SCHEME, METHOD],
    "te: trailers": [*LEAST, (b"te", b"trailers")],
    "te: Trailers": [*LEAST, (b"te", b"Trailers")],
    "host that is the authority": [*POST, (b"host", b"localhost")],
    "host without an authority": [*LEAST, (b"host", b"other")],
    "empty value": [*LEAST, (b"x", b"")],
    "space within a value": [*LEAST, (b"x", b"a b\tc")],
    "value that is no ASCII": [*LEAST, (b"x", b"\xff\x80")],
    "every character that a name may have": [*LEAST, (b"!#$%&'*+-.^_`|~09az", b"1")],
    "content-length twice, the same": [*LEAST, (b"content-length", b"5"), (b"content-length", b"5")],
    "CONNECT": CONNECT,
    "OPTIONS of everything": [(b":method", b"OPTIONS"), SCHEME, (b":path", b"*")],
}


@pytest.mark.parametrize("fields", GOOD.values(), ids=GOOD)
def test_a_request_within_the_rules_is_taken(fields: list[Field]) -> None:
    head = request_head(fields)
    assert head.fields == tuple(field for field in fields if not field[0].startswith(b":"))


BAD: dict[str, list[Field]] = {
    "8.3.1 no fields": [],
    "8.3.1 no method": [SCHEME, PATH],
    "8.3.1 no scheme": [METHOD, PATH],
    "8.3.1 no path": [METHOD, SCHEME],
    "8.3.1 empty path": [METHOD, SCHEME, (b":path", b"")],
    "8.3.1 path without a slash": [METHOD, SCHEME, (b":path", b"service")],
    "8.3.1 everything, but not for OPTIONS": [METHOD, SCHEME, (b":path", b"*")],
    "8.3.1 host other than the authority": [*POST, (b"host", b"elsewhere")],
    "8.3 method twice": [METHOD, *LEAST],
    "8.3 path twice": [*LEAST, PATH],
    "8.3 unknown pseudo-header field": [*LEAST, (b":unknown", b"1")],
    "8.3 pseudo-header field of responses": [*LEAST, (b":status", b"200")],
    "8.3 pseudo-header field behind others": [METHOD, SCHEME, (b"x", b"1"), PATH],
    "8.5 CONNECT with a path": [*CONNECT, PATH],
    "8.5 CONNECT with a scheme": [*CONNECT, SCHEME],
    "8.5 CONNECT without an authority": CONNECT[:1],
    "8.2 upper case": [*LEAST, (b"Upper", b"1")],
    "8.2.1 empty name": [*LEAST, (b"", b"1")],
    "8.2.1 space in a name": [*LEAST, (b"a b", b"1")],
    "8.2.1 colon in a name": [*LEAST, (b"a:b", b"1")],
    "8.2.1 name that is no ASCII": [*LEAST, (b"\xc3\xa4", b"1")],
    "8.2.1 line end in a name": [*LEAST, (b"a\n", b"1")],
    "8.2.1 NUL in a value": [*LEAST, (b"x", b"a\0b")],
    "8.2.1 line feed in a value": [*LEAST, (b"x", b"a\nb")],
    "8.2.1 line feed as a value": [*LEAST, (b"x", b"\n")],
    "8.2.1 carriage return in a value": [*LEAST, (b"x", b"a\rb")],
    "8.2.1 space before a value": [*LEAST, (b"x", b" a")],
    "8.2.1 tab before a value": [*LEAST, (b"x", b"\ta")],
    "8.2.1 space behind a value": [*LEAST, (b"x", b"a ")],
    "8.2.1 tab behind a value": [*LEAST, (b"x", b"a\t")],
    "8.2.1 NUL in a path": [METHOD, SCHEME, (b":path", b"/\0")],
    "8.2.2 connection": [*LEAST, (b"connection", b"close")],
    "8.2.2 keep-alive": [*LEAST, (b"keep-alive", b"1")],
    "8.2.2 proxy-connection": [*LEAST, (b"proxy-connection", b"close")],
    "8.2.2 transfer-encoding": [*LEAST, (b"transfer-encoding", b"chunked")],
    "8.2.2 upgrade": [*LEAST, (b"upgrade", b"h2c")],
    "8.2.2 te other than trailers": [*LEAST, (b"te", b"trailers, deflate")],
    "8.1.1 content-length that is no number": [*LEAST, (b"content-length", b"+5")],
    "8.1.1 empty content-length": [*LEAST, (b"content-length", b"")],
    "8.1.1 content-length beyond all measure": [*LEAST, (b"content-length", b"9" * 19)],
    "8.1.1 content-length twice": [*LEAST, (b"content-length", b"5"), (b"content-length", b"6")],
}


@pytest.mark.parametrize("fields", BAD.values(), ids=BAD)
def test_a_request_against_the_rules_is_malformed(fields: list[Field]) -> None:
    with pytest.raises(MalformedHead):
        request_head(fields)


def test_trailers_follow_the_same_rules_and_have_no_pseudo_header_fields() -> None:
    check_trailers([(b"checksum", b"1")])
    for bad in ((b":path", b"/"), (b"Upper", b"1"), (b"x", b"a\n"), (b"connection", b"close")):
        with pytest.raises(MalformedHead):
            check_trailers([bad])
