"""What is left of a connection that is over: nothing, and without the help of the garbage collector."""

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from penstock.net.http.asgi import AsgiRequest
from penstock.net.http.auth import ConnectionAuth
from penstock.net.http.connection import HttpConnection
from penstock.net.http.parser import RequestReader
from penstock.net.http.pipeline import Pipeline
from penstock.net.http.request import Refusal, Request
from penstock.net.http.streaming import ResponseStream
from penstock.net.tls import Certificates, TlsSettings
from tests.net.http.serving import House, Peer, get, post, request
from tests.net.http.test_auth import named
from tests.net.http.test_door import UPGRADE
from tests.net.slow_access import SlowAccess, has_begun
from tests.support.certificates import Authority
from tests.support.waiting import until

HALF = request("POST", "/hot", "Content-Length: 100000") + bytes(50_000)
HALF_FOR_APP = request("POST", "/app/x", "Content-Length: 100000") + bytes(50_000)
FOREIGN = "Origin: https://evil.example"
OF_A_CONNECTION = (
    HttpConnection,
    RequestReader,
    Pipeline,
    ConnectionAuth,
    Request,
    Refusal,
    AsgiRequest,
    ResponseStream,
)
TURNS = 100
Story = Callable[[House, Peer], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module", autouse=True)
def nothing_of_earlier_tests() -> Iterator[None]:
    """There may be millions of objects by now, and none of them is looked for."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def remains() -> list[str]:
    """What there is of connections, found by their kinds."""
    return [type(each).__name__ for each in gc.get_objects() if isinstance(each, OF_A_CONNECTION)]


async def released(house: House, peer: Peer, story: Story) -> None:
    """Tell how one connection goes, and wait until nothing of it is left."""
    await until(lambda: house.door.connections, "no connection was opened", every_s=0)
    await story(house, peer)
    await peer.close()
    house.held.clear()
    await until(lambda: not house.door.connections, "a connection is still open", every_s=0.001)
    for _ in range(TURNS):  # whoever works on something has to notice that it is over
        if not (left := remains()):
            break
        await asyncio.sleep(0.01)
    assert left == []
    assert house.door.bodies.held_bytes == 0


async def abort(peer: Peer) -> None:
    peer.writer.transport.abort()


async def nothing_said(house: House, peer: Peer) -> None:
    await abort(peer)


async def amid_a_head(house: House, peer: Peer) -> None:
    await peer.send(get()[:-1])
    await house.has_read(len(get()) - 1)
    await abort(peer)


async def amid_a_body(house: House, peer: Peer) -> None:
    await peer.send(HALF)
    await house.has_read(len(HALF))
    await abort(peer)


async def amid_a_body_for_the_application(house: House, peer: Peer) -> None:
    await peer.send(HALF_FOR_APP)
    await house.has_read(len(HALF_FOR_APP))
    await abort(peer)


async def after_answers(house: House, peer: Peer) -> None:
    for data in (get(), post("/hot", bytes(50_000)), get("/app/x"), get("/refused"), get("/app/missing")):
        await peer.ask(data)


async def told_to_close(house: House, peer: Peer) -> None:
    assert (await peer.ask(get("/app/x", "Connection: close"))).status == 200
    assert await peer.rest() == b""


async def refused(house: House, peer: Peer) -> None:
    assert (await peer.ask(request("POST", "/hot", FOREIGN, "Content-Length: 3") + b"abc")).status == 403
    assert (await peer.ask(request("POST", "/small", "Content-Length: 11"))).status == 413
    assert await peer.rest() == b""


async def refused_amid_a_body(house: House, peer: Peer) -> None:
    answer = await peer.ask(request("POST", "/small", "Transfer-Encoding: chunked") + b"b\r\n01234567890")
    assert answer.status == 413


async def not_understood(house: House, peer: Peer) -> None:
    assert (await peer.ask(b"GET /hot\0 HTTP/1.1\r\n\r\n")).status == 400


async def while_a_hot_route_works(house: House, peer: Peer) -> None:
    await peer.send(get("/later?watched") + post("/later", bytes(50_000)) + get("/app/x"))
    await until(lambda: len(house.held) >= 2, "fewer than 2 requests were received", every_s=0)
    await abort(peer)
    await house.is_disconnected.wait()
    house.gone.clear()


async def while_the_application_works(house: House, peer: Peer) -> None:
    await peer.send(post("/app/forever", bytes(50_000)) + get())
    await house.has_started.wait()
    await abort(peer)
    await house.was_left.wait()


async def while_the_application_streams(house: House, peer: Peer) -> None:
    await peer.send(get("/app/stream"))
    await until(
        lambda: any(each.is_full for each in house.door.connections), "no connection was full", every_s=0
    )
    await abort(peer)
    house.may_go_on.set()


async def after_a_mistake(house: House, peer: Peer) -> None:
    with capture_logs() as told:  # what is not drawn with all its frames, for a picture keeps them
        assert (await peer.ask(get("/broken"))).status == 500
        assert (await peer.ask(get("/app/broken"))).status == 500
        await peer.send(get("/app/cut"))
        assert await peer.is_cut()
    assert [each["event"] for each in told] == ["request failed"] * 3


async def amid_a_flood(house: House, peer: Peer) -> None:
    peer.writer.write(get() * 3_000)
    await until(lambda: house.seen, "no request was seen", every_s=0)
    await abort(peer)


async def handed_over(house: House, peer: Peer) -> None:
    await peer.send(get() + get("/socket", *UPGRADE) + b"rest")
    await until(lambda: house.taken, "no upgrade was taken", every_s=0)
    [(_, _, transport, _)] = house.taken
    transport.set_protocol(asyncio.Protocol())


def flow_of(house: House) -> list[ResponseStream]:
    """The answer of a route that goes on, and refers to itself as routes do."""
    flows: list[ResponseStream] = []

    def begin(request: Request) -> None:
        flow = request.begin()
        flow.on_disconnect = flow.on_pause = flow.on_resume = lambda: flow.write(b"never")
        flows.append(flow)

    house.routes.add("GET", "/flow", begin)
    return flows


async def while_an_answer_goes_on(house: House, peer: Peer) -> None:
    flows = flow_of(house)
    await peer.send(get("/flow") + get())
    await peer.reader.readuntil(b"\r\n\r\n")
    await abort(peer)
    await until(lambda: flows[0].is_over, "the response is not over", every_s=0)
    flows.clear()


async def after_an_answer_that_went_on(house: House, peer: Peer) -> None:
    flows = flow_of(house)
    await peer.send(get("/flow"))
    await until(lambda: flows, "no response was started", every_s=0)
    flows.pop().end(b"end")
    assert (await peer.answer()).body == b"end"
    assert (await peer.ask(get())).status == 200


async def handed_over_with_a_name(house: House, peer: Peer) -> None:
    house.routes.upgrade("/known", lambda *given: house.taken.append(given[:4]), needs_identity=True)
    await peer.send(get() + get("/known", *UPGRADE) + b"rest")
    await until(lambda: house.taken, "no upgrade was taken", every_s=0)
    [(_, _, transport, _)] = house.taken
    transport.set_protocol(asyncio.Protocol())


STORIES: list[Story] = [
    nothing_said,
    amid_a_head,
    amid_a_body,
    amid_a_body_for_the_application,
    after_answers,
    told_to_close,
    refused,
    refused_amid_a_body,
    not_understood,
    while_a_hot_route_works,
    while_the_application_works,
    while_the_application_streams,
    after_a_mistake,
    amid_a_flood,
    while_an_answer_goes_on,
    after_an_answer_that_went_on,
    handed_over,
    handed_over_with_a_name,
]


@pytest.mark.parametrize("story", STORIES)
async def test_nothing_is_left_of_a_connection(house: House, story: Story) -> None:
    await house.open()
    await released(house, await house.connect(is_slow=story is while_the_application_streams), story)


@pytest.mark.parametrize("story", [each for each in STORIES if "handed_over" not in each.__name__])
async def test_nothing_is_left_of_a_connection_with_tls(
    house: House, story: Story, authority: Authority, tmp_path: Path
) -> None:
    files = TlsSettings(certificate_file=authority.issue(tmp_path, "server").both)
    await house.open(certificates=Certificates(files), write_buffer_bytes=1024)
    await released(house, await house.connect(tls=authority.client_context()), story)


async def test_nothing_is_left_while_the_application_is_still_loading(house: House) -> None:
    loaded = asyncio.Event()
    loop = asyncio.get_running_loop()

    def load() -> Any:
        asyncio.run_coroutine_threadsafe(loaded.wait(), loop).result()
        return house.app

    async def story(house: House, peer: Peer) -> None:
        await peer.send(HALF_FOR_APP)
        await house.has_read(len(HALF_FOR_APP))
        await abort(peer)

    await house.open(load_app=load)
    await released(house, await house.connect(), story)
    loaded.set()
    assert (await house.ask(get("/app/x"))).status == 200


async def test_who_went_while_the_application_was_loading_is_known_to_have_gone(house: House) -> None:
    loaded = asyncio.Event()
    loop = asyncio.get_running_loop()

    def load() -> Any:
        asyncio.run_coroutine_threadsafe(loaded.wait(), loop).result()
        return house.app

    async def story(house: House, peer: Peer) -> None:
        await peer.send(get("/app/forever"))
        peer.writer.write_eof()
        await until(
            lambda: [each.has_ended for each in house.door.connections] == [True],
            "the connection has not ended",
            every_s=0,
        )
        loaded.set()
        await asyncio.wait_for(house.was_left.wait(), 10)

    await house.open(load_app=load)
    await released(house, await house.connect(), story)


async def test_nothing_is_left_while_a_password_is_checked(house: House) -> None:
    slow = SlowAccess()

    async def story(house: House, peer: Peer) -> None:
        await peer.send(get("/hot", named(1)))
        await has_begun(slow)
        await abort(peer)

    await house.open(access=slow)
    await released(house, await house.connect(), story)
    slow.may_end.set()
