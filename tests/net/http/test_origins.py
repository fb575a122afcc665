"""Which names are ours and which pages are welcome, over HTTP."""

from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin, Subprotocol

from penstock.app import Server
from penstock.config import Settings
from penstock.doors.mqtt import MqttSettings
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.net.http import HttpSettings
from penstock.net.origins import Origins
from penstock.net.websocket import WebSocketSettings
from tests.net.http.serving import House, get, post, request

EVIL = "Origin: https://evil.example"
PAGE = "Origin: https://app.example.org"


@pytest.mark.parametrize("path", ["/hot", "/app/x", "/open", "/health"])
async def test_a_name_that_was_made_to_point_here_gets_nothing(house: House, path: str) -> None:
    await house.open()
    peer = await house.connect()
    for method in ("GET", "HEAD", "POST"):
        answer = await peer.ask(request(method, path, host="rebound.example:8080"), method)
        assert answer.status == 421
    assert house.seen == []
    assert (await peer.ask(get(path))).status == 200


async def test_the_host_of_an_absolute_target_counts(house: House) -> None:
    await house.open()
    peer = await house.connect()
    assert (await peer.ask(get("http://evil.example/hot"))).status == 421
    assert (await peer.ask(get("http://localhost/hot", host="evil.example"))).status == 200
    assert (await peer.ask(get("/hot", host="evil.example"))).status == 421


async def test_listed_names_are_ours(house: House) -> None:
    await house.open(websocket=WebSocketSettings(hosts=("broker.example.org",)))
    peer = await house.connect()
    assert (await peer.ask(get(host="Broker.Example.org:443"))).status == 200
    assert (await peer.ask(get(host="other.example.org"))).status == 421


PRIVATE_NAMES = (
    "broker",
    "pub_sub",
    "my-broker",
    "broker.local",
    "broker.default.svc.cluster.local",
    "broker.internal",
    "broker.home.arpa",
)
PUBLIC_NAMES = (
    *("broker.example", "local.example", "broker.default", "broker.default.svc", "internal.evil.org"),
    *("xlocal", "x.internal.com", "br\u00f6ker", "a b", ".local", "", "local.", "a..", "*"),
)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "broker.example.org"])
def test_a_server_beyond_loopback_has_the_names_that_nobody_can_register(host: str) -> None:
    origins = Origins(host)
    for name in PRIVATE_NAMES:
        assert origins.is_ours(name) and origins.is_ours(f"{name.upper()}:8000"), name
    for name in PUBLIC_NAMES[:5]:
        assert not origins.is_ours(name), name
    for name in ("", "a b", "[", "a@b", "br\u00f6ker", ".local"):
        assert not origins.is_ours(name), name


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.1.2.3"])
def test_a_server_on_loopback_is_localhost_alone(host: str) -> None:
    """Whoever controls the network of a machine could give it such a name, and reach what only it can."""
    origins = Origins(host)
    assert not any(map(origins.is_ours, (*PRIVATE_NAMES, *PUBLIC_NAMES)))
    for name in ("localhost", "page.localhost", "LOCALHOST:8080", "a.b.localhost."):
        assert origins.is_ours(name), name
    assert not origins.is_ours("localhost.evil.example")
    assert not origins.is_ours("evillocalhost")


async def test_a_container_name_is_served_beyond_loopback(house: House) -> None:
    await house.open(host="0.0.0.0")
    peer = await house.connect()
    assert (await peer.ask(get(host="pubsub:8000"))).status == 200
    assert (await peer.ask(get(host="pubsub.example:8000"))).status == 421


@pytest.mark.parametrize("path", ["/hot", "/app/x"])
@pytest.mark.parametrize("site", ["cross-site", "same-site", "Cross-Site"])
async def test_a_foreign_page_without_an_origin_may_change_nothing_either(
    house: House, path: str, site: str
) -> None:
    await house.open()
    peer = await house.connect()
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert (await peer.ask(request(method, path, f"Sec-Fetch-Site: {site}"))).status == 403
    assert house.seen == []
    assert (await peer.ask(get(path, f"Sec-Fetch-Site: {site}"))).status == 200  # a link
    for own in ("same-origin", "none"):
        assert (await peer.ask(post(path, b"", f"Sec-Fetch-Site: {own}"))).status == 200
    listed = (f"Sec-Fetch-Site: {site}", "Origin: http://localhost")
    assert (await peer.ask(post(path, b"", *listed))).status == 200


@pytest.mark.parametrize("path", ["/hot", "/app/x"])
async def test_a_foreign_page_may_change_nothing(house: House, path: str) -> None:
    await house.open()
    peer = await house.connect()
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert (await peer.ask(request(method, path, EVIL))).status == 403
    assert house.seen == []
    for welcome in ("Origin: http://localhost", "Origin: https://localhost", "X: no origin"):
        assert (await peer.ask(post(path, b"", welcome))).status == 200


@pytest.mark.parametrize("path", ["/hot", "/app/x"])
async def test_a_page_from_another_port_is_a_foreign_page(house: House, path: str) -> None:
    await house.open()
    peer = await house.connect()
    host = f"localhost:{house.door.ports()[0]}"
    for origin in ("http://localhost:3000", "http://localhost", "https://localhost"):
        assert (await peer.ask(request("POST", path, f"Origin: {origin}", host=host))).status == 403
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Origin: http://localhost:3000")
    assert (await peer.ask(get("/socket", *upgrade, host=host))).status == 403
    assert (await peer.ask(request("POST", path, f"Origin: http://{host}", host=host))).status == 200


async def test_a_foreign_page_is_answered_but_not_allowed_to_read(house: House) -> None:
    await house.open()
    answer = await house.ask(get("/hot", EVIL))
    assert answer.status == 200
    assert "access-control-allow-origin" not in answer.headers


async def test_a_foreign_page_follows_no_stream_and_opens_no_socket(house: House) -> None:
    await house.open()
    peer = await house.connect()
    assert (await peer.ask(get("/app/x", EVIL, "Accept: text/event-stream"))).status == 403
    upgrade = ("Connection: Upgrade", "Upgrade: websocket")
    assert (await peer.ask(get("/socket", EVIL, *upgrade))).status == 403
    assert house.taken == []


async def test_nobody_is_told_that_it_may_call_unless_it_is_listed(house: House) -> None:
    await house.open(websocket=WebSocketSettings(origins=("https://app.example.org",)))
    peer = await house.connect()
    preflight = "Access-Control-Request-Method: POST"
    for origin in (EVIL, PAGE, "Origin: http://localhost:3000"):
        answer = await peer.ask(request("OPTIONS", "/hot", origin, preflight))
        assert answer.status == 403
        assert "access-control-allow-origin" not in answer.headers
    assert (await peer.ask(post("/hot", b"", PAGE))).status == 200


@pytest.mark.parametrize("path", ["/hot", "/app/x"])
async def test_a_listed_page_may_call_and_read(house: House, path: str) -> None:
    await house.open(cors_origins=("https://app.example.org",))
    peer = await house.connect()
    wanted = (
        "Access-Control-Request-Method: POST",
        "Access-Control-Request-Headers: content-type, x-client-id",
    )
    told = await peer.ask(request("OPTIONS", path, PAGE, *wanted))
    assert told.status == 204
    assert told.headers["access-control-allow-origin"] == "https://app.example.org"
    assert "POST" in told.headers["access-control-allow-methods"]
    assert told.headers["access-control-allow-headers"] == "content-type, x-client-id"
    for data in (get(path, PAGE), post(path, b"", PAGE)):
        answer = await peer.ask(data)
        assert answer.status == 200
        assert answer.headers["access-control-allow-origin"] == "https://app.example.org"
        assert answer.headers["vary"] == "origin"
    assert (await peer.ask(post(path, b"", EVIL))).status == 403
    assert "access-control-allow-origin" not in (await peer.ask(get(path))).headers


async def test_a_page_that_may_not_read_is_logged_once(house: House) -> None:
    await house.open()
    peer = await house.connect()
    with capture_logs() as lines:
        for _ in range(3):
            assert (await peer.ask(get("/hot", EVIL))).status == 200
        assert (await peer.ask(get("/hot"))).status == 200
    [line] = [each for each in lines if each["event"] == "page not served"]
    assert line["origin"] == EVIL.partition(": ")[2]
    assert (line["path"], "http.cors_origins" in line["detail"]) == ("/hot", True)


async def test_a_page_of_this_server_or_of_the_list_is_not_logged(house: House) -> None:
    await house.open(cors_origins=("https://app.example.org",))
    peer = await house.connect()
    with capture_logs() as lines:
        for origin in (PAGE, "Origin: http://localhost"):
            assert (await peer.ask(get("/hot", origin))).status == 200
    assert not lines


async def test_a_listed_page_may_read_why_it_was_refused(house: House) -> None:
    await house.open(cors_origins=("*",))
    answer = await house.ask(get("/api/v1/refused", PAGE))
    assert answer.status == 429
    assert answer.headers["access-control-allow-origin"] == "https://app.example.org"


def test_a_star_among_the_readers_is_meant() -> None:
    origins = Origins("127.0.0.1", readers=("*",))
    assert origins.may_read("https://any.example")
    assert origins.is_welcome("https://any.example", "localhost")


def test_an_empty_entry_lets_nobody_in() -> None:
    origins = Origins("127.0.0.1", hosts=("",), pages=("",), readers=("",))
    assert not origins.is_ours("")
    assert not origins.is_welcome("", "")
    assert not origins.may_read("")
    assert not origins.may_read("null")


async def test_pages_of_both_lists_open_mqtt_on_the_http_port_and_no_others() -> None:
    """And a page that may only use the HTTP port gets nothing at a port for WebSockets alone."""
    settings = Settings(
        mqtt=MqttSettings(port=0, websocket_port=0),
        http=HttpSettings(port=(0,), cors_origins=("https://app.example.org",)),
        websocket=WebSocketSettings(origins=("https://other.example.org",)),
        sidecar=SidecarSettings(port=None),
        shutdown_timeout_s=1.0,
    )
    server = Server(settings)
    await server.start()
    try:
        [http_port] = server.http.ports()
        own_port = next(urlsplit(each).port for each in server.mqtt.addresses() if each.startswith("ws:"))
        assert own_port is not None
        app, other, evil = "https://app.example.org", "https://other.example.org", "https://evil.example"
        assert [await upgraded(http_port, page) for page in (app, other, evil)] == [101, 101, 403]
        assert [await upgraded(own_port, page) for page in (app, other, evil)] == [403, 101, 403]
    finally:
        await server.stop()


async def upgraded(port: int, origin: str) -> int:
    """The status that a page of an origin gets when it wants to open MQTT."""
    try:
        async with connect(
            f"ws://127.0.0.1:{port}/mqtt", subprotocols=[Subprotocol("mqtt")], origin=Origin(origin)
        ):
            return 101
    except InvalidStatus as error:
        return error.response.status_code
