"""Who may open a WebSocket: paths, sub-protocols, hosts, origins and compression, and the answers."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from penstock.net.origins import Origins
from penstock.net.websocket import WebSocketSettings
from penstock.net.websocket.handshake import HandshakeResult, Terms, read_request, respond_to
from penstock.wire.websocket.deflate import Deflate
from tests.net.websocket.peers import HELLO, make_terms, request_bytes

DEFAULT = WebSocketSettings()


def ask(request: Request, **changes: Any) -> Response:
    return respond_to(request, make_terms(**changes)).response


def request(*headers: tuple[str, str], path: str = "/mqtt", method: str = "GET", **changes: str) -> Request:
    """A request that is accepted unless it is changed; `headers` come on top and may repeat others."""
    given = HELLO | {name.replace("_", "-"): value for name, value in changes.items()}
    return Request(path, Headers([*given.items(), *headers]), method)


def without(name: str) -> Request:
    return Request("/mqtt", Headers([item for item in HELLO.items() if item[0] != name]))


def test_a_good_request_is_accepted() -> None:
    response = ask(request())
    assert response.status_code == 101
    assert response.headers["Sec-WebSocket-Accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="  # RFC 6455, 1.3
    assert response.headers["Sec-WebSocket-Protocol"] == "mqtt"  # MQTT-6.0.0-4


@pytest.mark.parametrize("offered", ["mqtt", "mqttv3.1, mqtt", "mqtt,chat"])
def test_the_subprotocol_is_chosen_from_those_offered(offered: str) -> None:
    response = ask(request(Sec_WebSocket_Protocol=offered))
    assert (response.status_code, response.headers["Sec-WebSocket-Protocol"]) == (101, "mqtt")


@pytest.mark.parametrize(
    "bad", [without("Sec-WebSocket-Protocol"), request(Sec_WebSocket_Protocol="mqttv3.1, MQTT")]
)
def test_a_client_that_does_not_offer_the_subprotocol_is_told(bad: Request) -> None:
    response = ask(bad)  # MQTT-6.0.0-3
    assert response.status_code == 400
    assert b"the sub-protocol mqtt must be offered" in response.body


def test_compression_is_never_agreed_on() -> None:
    response = ask(request(Sec_WebSocket_Extensions="permessage-deflate; client_max_window_bits"))
    assert response.status_code == 101
    assert "Sec-WebSocket-Extensions" not in response.headers


@pytest.mark.parametrize("path", ["/mqtt", "/mqtt?", "/mqtt?token=1&path=/other"])
def test_a_query_does_not_matter(path: str) -> None:
    assert ask(request(path=path)).status_code == 101


@pytest.mark.parametrize("path", ["/", "/mqtt/", "/MQTT", "/other", "//mqtt", "*", "http://localhost/mqtt"])
def test_other_paths_lead_nowhere(path: str) -> None:
    response = ask(request(path=path))
    assert response.status_code == 404
    assert b"/mqtt" in response.body


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        (request(method="POST"), 405),
        (without("Upgrade"), 426),
        (without("Connection"), 426),
        (request(Upgrade="h2c"), 426),
        (without("Sec-WebSocket-Key"), 400),
        (request(Sec_WebSocket_Key="c2hvcnQ="), 400),
        (without("Sec-WebSocket-Version"), 426),
        (request(Sec_WebSocket_Version="8"), 426),
        (without("Host"), 400),
        (request(("Host", "localhost")), 400),
        (request(("Origin", "http://localhost"), ("Origin", "http://localhost")), 400),
        (Request("/mqtt", Headers(HELLO), "GET", "HTTP/1.0"), 505),
    ],
)
def test_what_is_no_handshake_is_refused(bad: Request, status: int) -> None:
    response = ask(bad)
    assert response.status_code == status
    assert response.headers["Connection"] == "close"
    assert response.body.strip()


def test_a_client_of_another_version_is_told_ours() -> None:
    headers = ask(request(Sec_WebSocket_Version="8")).headers
    assert (headers["Sec-WebSocket-Version"], headers["Upgrade"]) == ("13", "websocket")


LISTED_HOSTS = WebSocketSettings(hosts=("broker.example.org", "Second.Example:8083"))


@pytest.mark.parametrize(
    ("host", "settings", "is_ours"),
    [
        ("localhost", DEFAULT, True),
        ("LocalHost:8083", DEFAULT, True),
        ("localhost.", DEFAULT, True),
        ("127.0.0.1:9001", DEFAULT, True),
        ("192.168.1.7", DEFAULT, True),
        ("[::1]:8083", DEFAULT, True),
        ("[2001:db8::1]", DEFAULT, True),
        ("listening.example", DEFAULT, True),
        ("broker.example.org", DEFAULT, False),
        ("localhost.attacker.example", DEFAULT, False),
        ("127.0.0.1.attacker.example", DEFAULT, False),
        ("attacker.example:80", DEFAULT, False),
        ("localhost@attacker.example", DEFAULT, False),
        ("[attacker.example]", DEFAULT, False),
        ("attacker.example/localhost", DEFAULT, False),
        ("", DEFAULT, False),
        (":8083", DEFAULT, False),
        ("broker.example.org:443", LISTED_HOSTS, True),
        ("second.example", LISTED_HOSTS, True),
        ("third.example", LISTED_HOSTS, False),
        ("any.example", WebSocketSettings(hosts=("*",)), True),
        ("", WebSocketSettings(hosts=("*",)), False),
    ],
)
def test_a_host_must_be_a_name_of_ours(host: str, settings: WebSocketSettings, is_ours: bool) -> None:
    response = ask(request(Host=host), host="Listening.example", settings=settings)
    assert response.status_code == (101 if is_ours else 421)
    assert is_ours or b"websocket.hosts" in response.body


LISTED_ORIGINS = WebSocketSettings(
    origins=("https://app.example.org", "Host.Example", "http://a.example:3000/")
)


@pytest.mark.parametrize(
    ("origin", "host", "settings", "is_welcome"),
    [
        ("http://localhost:8083", "localhost:8083", DEFAULT, True),
        ("https://LOCALHOST:8083", "localhost.:8083", DEFAULT, True),
        ("http://[::1]:8083", "[::1]:8083", DEFAULT, True),
        ("http://localhost:3000", "localhost:8083", DEFAULT, False),
        ("http://localhost", "localhost:8083", DEFAULT, False),
        ("http://localhost:8083", "localhost", DEFAULT, False),
        ("http://127.0.0.1:5173", "127.0.0.1:8083", DEFAULT, False),
        ("http://[::1]:5173", "[::1]:8083", DEFAULT, False),
        ("http://localhost", "localhost:80", DEFAULT, True),
        ("https://localhost:443", "localhost", DEFAULT, True),
        ("https://localhost", "localhost", DEFAULT, True),  # behind a proxy that ends TLS
        ("https://localhost", "localhost:80", DEFAULT, True),
        ("http://localhost:443", "localhost", DEFAULT, False),
        ("https://localhost:80", "localhost", DEFAULT, False),
        ("https://localhost:8443", "localhost:443", DEFAULT, False),
        ("ftp://localhost", "localhost", DEFAULT, False),
        ("http://127.0.0.1", "localhost", DEFAULT, False),
        ("https://attacker.example", "localhost", DEFAULT, False),
        ("https://localhost.attacker.example", "localhost", DEFAULT, False),
        ("https://localhost@attacker.example", "localhost", DEFAULT, False),
        ("null", "localhost", DEFAULT, False),
        ("", "localhost", DEFAULT, False),
        ("localhost", "localhost", DEFAULT, False),
        ("file://", "localhost", DEFAULT, False),
        ("https://app.example.org", "localhost", LISTED_ORIGINS, True),
        ("https://APP.example.org", "localhost", LISTED_ORIGINS, True),
        ("http://app.example.org", "localhost", LISTED_ORIGINS, False),
        ("https://app.example.org:8443", "localhost", LISTED_ORIGINS, False),
        ("http://host.example:1234", "localhost", LISTED_ORIGINS, True),
        ("http://a.example:3000", "localhost", LISTED_ORIGINS, True),
        ("http://localhost", "localhost", LISTED_ORIGINS, True),
        ("null", "localhost", LISTED_ORIGINS, False),
        ("null", "localhost", WebSocketSettings(origins=("null",)), True),
        ("", "localhost", WebSocketSettings(origins=("",)), False),
        ("file://", "localhost", WebSocketSettings(origins=("", "/")), False),
        ("https://any.example", "localhost", WebSocketSettings(origins=("*",)), True),
        ("https://any.example", "any.example", WebSocketSettings(origins=("*",)), None),
    ],
)
def test_a_page_must_come_from_here_or_be_listed(
    origin: str, host: str, settings: WebSocketSettings, is_welcome: bool | None
) -> None:
    response = ask(request(Origin=origin, Host=host), settings=settings)
    assert response.status_code == {True: 101, False: 403, None: 421}[is_welcome]
    assert is_welcome is not False or b"websocket.origins" in response.body


def test_the_head_of_a_request_is_read() -> None:
    read = read_request(request_bytes("/mqtt?x=1", Origin="http://localhost"))
    assert read is not None
    assert (read.method, read.path, read.headers["Origin"]) == ("GET", "/mqtt?x=1", "http://localhost")


@pytest.mark.parametrize(
    "head",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n",
        b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\n\r\n",
    ],
)
def test_a_head_that_is_not_valid_holds_no_request(head: bytes) -> None:
    assert read_request(head) is None


header_text = st.text(
    st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=30
)


@given(
    name=st.sampled_from([*HELLO, "Origin", "Sec-WebSocket-Extensions"]),
    value=header_text,
    repeat=st.booleans(),
)
def test_any_header_value_has_a_proper_answer(name: str, value: str, repeat: bool) -> None:
    asked = Request("/mqtt", Headers([*(HELLO | {name: value}).items(), *([(name, value)] * repeat)]))
    response = ask(asked)
    assert response.status_code in (101, 400, 403, 421, 426)
    response.serialize()


# Terms without a sub-protocol


@pytest.mark.parametrize("offered", [None, "mqtt", "chat, superchat"])
def test_where_no_subprotocol_is_spoken_none_has_to_be_offered(offered: str | None) -> None:
    asked = without("Sec-WebSocket-Protocol") if offered is None else request(Sec_WebSocket_Protocol=offered)
    response = ask(asked, subprotocols=())
    assert response.status_code == 101
    assert "Sec-WebSocket-Protocol" not in response.headers


def test_a_handshake_is_over_within_ten_seconds_unless_told_otherwise() -> None:
    assert 9 < Terms(path="/", origins=Origins("localhost"), limit_bytes=1).timeout_s < 10


# Compression (RFC 7692)

OURS = "server_no_context_takeover; client_no_context_takeover"


def negotiate(*offers: str) -> HandshakeResult:
    asked = request(*(("Sec-WebSocket-Extensions", offer) for offer in offers))
    return respond_to(asked, make_terms(deflates=True))


@pytest.mark.parametrize(
    ("offer", "answered", "agreed"),
    [
        ("permessage-deflate", f"{OURS}; server_max_window_bits=12", Deflate(15, 12)),
        (
            "permessage-deflate; client_max_window_bits",
            f"{OURS}; server_max_window_bits=12; client_max_window_bits=12",
            Deflate(12, 12),
        ),
        (
            "permessage-deflate; client_max_window_bits=10",
            f"{OURS}; server_max_window_bits=12; client_max_window_bits=10",
            Deflate(10, 12),
        ),
        (
            "permessage-deflate; client_max_window_bits=8",
            f"{OURS}; server_max_window_bits=12; client_max_window_bits=8",
            Deflate(8, 12),
        ),
        (
            'permessage-deflate; server_max_window_bits="15"; server_no_context_takeover',
            f"{OURS}; server_max_window_bits=12",
            Deflate(15, 12),
        ),
        (
            "permessage-deflate; server_max_window_bits=9; client_no_context_takeover",
            f"{OURS}; server_max_window_bits=9",
            Deflate(15, 9),
        ),
        (
            "x-webkit-deflate-frame, permessage-deflate; nonsense, permessage-deflate, permessage-deflate",
            f"{OURS}; server_max_window_bits=12",
            Deflate(15, 12),
        ),
        (
            "permessage-deflate; server_max_window_bits=8, permessage-deflate",
            f"{OURS}; server_max_window_bits=12",
            Deflate(15, 12),
        ),
    ],
)
def test_compression_is_agreed_on_as_it_was_offered(offer: str, answered: str, agreed: Deflate) -> None:
    given = negotiate(offer)
    assert given.is_acceptance
    assert given.response.headers["Sec-WebSocket-Extensions"] == f"permessage-deflate; {answered}"
    assert given.deflate == agreed


def test_offers_may_stand_in_several_headers() -> None:
    assert negotiate("permessage-deflate; nonsense", "permessage-deflate").deflate == Deflate(15, 12)


@pytest.mark.parametrize(
    "offer",
    [
        "permessage-bzip2",
        "x-webkit-deflate-frame",
        "permessage-deflate; nonsense",
        "permessage-deflate; server_no_context_takeover=true",
        "permessage-deflate; client_no_context_takeover; client_no_context_takeover",
        "permessage-deflate; server_max_window_bits",
        "permessage-deflate; server_max_window_bits=8",
        "permessage-deflate; server_max_window_bits=7",
        "permessage-deflate; server_max_window_bits=16",
        "permessage-deflate; server_max_window_bits=012",
        "permessage-deflate; client_max_window_bits=16",
        "permessage-deflate; client_max_window_bits=x",
        "permessage-deflate; client_max_window_bits=10; client_max_window_bits=10",
    ],
)
def test_an_offer_that_cannot_be_met_leaves_messages_as_they_are(offer: str) -> None:
    given = negotiate(offer)  # RFC 7692, 5.1: declined, and the handshake goes on
    assert given.is_acceptance
    assert given.deflate is None
    assert "Sec-WebSocket-Extensions" not in given.response.headers


def test_nobody_is_given_compression_who_did_not_ask_for_it() -> None:
    given = negotiate()
    assert (given.is_acceptance, given.deflate) == (True, None)
    assert "Sec-WebSocket-Extensions" not in given.response.headers


@pytest.mark.parametrize("offer", ["permessage-deflate; ;", "=", "permessage-deflate; a=", '"'])
def test_an_offer_that_is_no_header_is_refused(offer: str) -> None:
    given = negotiate(offer)
    assert (given.response.status_code, given.deflate) == (400, None)


def test_a_refused_request_agrees_to_nothing() -> None:
    asked = request(("Sec-WebSocket-Extensions", "permessage-deflate"), Sec_WebSocket_Protocol="chat")
    given = respond_to(asked, make_terms(deflates=True))
    assert (given.is_acceptance, given.deflate) == (False, None)
