"""Several requests on one connection: their order, their answers, and what happens when one is slow."""

import asyncio

from tests.net.http.serving import MIB, House, get, post, request
from tests.support.waiting import until


async def test_answers_come_in_the_order_of_requests_whoever_gives_them(house: House) -> None:
    await house.open()
    peer = await house.connect()
    paths = ["/hot", "/app/1", "/hot", "/hot", "/app/2", "/app/3", "/hot"]
    await peer.send(b"".join(map(get, paths)))
    answers = [(await peer.answer()).json() for _ in paths]
    assert [each.get("path") or each["hot"] for each in answers] == paths


async def test_hot_routes_begin_in_order_and_need_not_wait_for_each_other(house: House) -> None:
    await house.open()
    peer = await house.connect()
    await peer.send(b"".join(post("/later", b"%d" % number) for number in range(3)))
    await until(lambda: len(house.held) >= 3, "fewer than 3 requests were received", every_s=0)
    for held in reversed(house.held):
        held.respond(200, held.body)
    assert [(await peer.answer()).body for _ in range(3)] == [b"0", b"1", b"2"]


async def test_what_is_behind_a_request_for_the_application_waits_for_its_answer(house: House) -> None:
    await house.open()
    peer = await house.connect()
    await peer.send(get("/app/wait") + post("/hot", b"x"))
    await house.has_started.wait()
    assert house.seen == []
    house.may_go_on.set()
    assert (await peer.answer()).body == b"waited"
    assert (await peer.answer()).json()["hot"] == "/hot"


async def test_the_application_waits_for_the_answers_before_it(house: House) -> None:
    await house.open()
    peer = await house.connect()
    await peer.send(get("/later") + get("/app/wait"))
    await house.is_held.wait()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not house.has_started.is_set()
    house.may_go_on.set()
    house.held[0].respond(200, b"first")
    assert [(await peer.answer()).body for _ in range(2)] == [b"first", b"waited"]


async def test_answers_of_one_turn_leave_in_one_write(house: House) -> None:
    await house.open()
    peer = await house.connect()
    await peer.send(get() * 50)
    first = await peer.reader.read(MIB)
    assert first.count(b"HTTP/1.1 200 OK") == 50


async def test_late_answers_of_one_turn_leave_in_one_write(house: House) -> None:
    await house.open()
    peer = await house.connect()
    await peer.send(get("/later") * 20)
    await until(lambda: len(house.held) >= 20, "fewer than 20 requests were received", every_s=0)
    for held in house.held:
        held.respond(200, b"late")
    assert (await peer.reader.read(MIB)).count(b"late") == 20


async def test_reading_stops_while_too_many_requests_wait(house: House) -> None:
    await house.open(max_pipelined=10)
    peer = await house.connect()
    wanted = 2_000
    await peer.send(get("/later") * wanted)
    answered = 0
    while answered < wanted:

        def is_received(done: int = answered) -> bool:
            return done != len(house.held)

        await until(is_received, "no further request was received", every_s=0)
        assert len(house.held) - answered <= 400  # ten, and what one piece of 8 KiB can hold
        house.held[answered].respond(200, b"%d" % answered)
        answered += 1
    assert [int((await peer.answer()).body) for _ in range(wanted)] == list(range(wanted))


async def test_a_second_answer_is_ignored(house: House) -> None:
    await house.open()
    peer = await house.connect()
    await peer.send(get("/later") + get("/hot"))
    await house.is_held.wait()
    house.held[0].respond(200, b"once")
    house.held[0].respond(500, b"twice")
    assert (await peer.answer()).body == b"once"
    assert (await peer.answer()).status == 200


# Heads and bodies


async def test_head_has_everything_but_the_body(house: House) -> None:
    await house.open()
    peer = await house.connect()
    for path in ("/hot", "/app/x"):
        got = await peer.ask(get(path))
        told = await peer.ask(request("HEAD", path), "HEAD")
        assert (told.status, told.headers.keys()) == (got.status, got.headers.keys())
        assert told.headers["content-length"] == str(len(got.body).__index__())
    assert house.seen[-1].method == "HEAD"


async def test_head_of_a_stream_ends_at_once(house: House) -> None:
    await house.open()
    peer = await house.connect()
    assert (await peer.ask(request("HEAD", "/app/stream"), "HEAD")).status == 200
    house.may_go_on.set()
    assert (await peer.ask(get())).status == 200


async def test_an_answer_without_content_has_no_body(house: House) -> None:
    await house.open()
    peer = await house.connect()
    answer = await peer.ask(get("/nothing"))
    assert (answer.status, "content-length" in answer.headers) == (204, False)
    assert (await peer.ask(get())).status == 200


async def test_whoever_expects_it_is_told_to_go_on(house: House) -> None:
    await house.open()
    for path in ("/hot", "/app/x"):
        peer = await house.connect()
        assert (
            await peer.ask(request("POST", path, "Content-Length: 3", "Expect: 100-continue"))
        ).status == 100
        assert (await peer.ask(b"abc")).json()["body"] == 3
        assert (await peer.ask(get())).status == 200


async def test_whoever_sends_without_waiting_gets_one_answer(house: House) -> None:
    await house.open()
    peer = await house.connect()
    await peer.send(request("POST", "/hot", "Content-Length: 3", "Expect: 100-continue") + b"abc")
    answers = [(await peer.answer()).status]
    if answers == [100]:
        answers = [(await peer.answer()).status]
    assert answers == [200]
    assert (await peer.ask(get())).status == 200


async def test_who_is_refused_while_it_waits_to_go_on_gets_no_second_request_through(house: House) -> None:
    await house.open()
    foreign = "Origin: https://evil.example"
    for path, header, status in (
        ("/app/unread", "X: a", 202),
        ("/small", "X: a", 413),
        ("/nowhere%ff", "X: a", 400),
        ("/hot", foreign, 403),
    ):
        peer = await house.connect()
        head = request("POST", path, "Content-Length: 30", "Expect: 100-continue", header)
        answer = await peer.ask(head)
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        await peer.send(get("/hot?smuggled"))
        assert await peer.is_cut()
    assert house.seen == []


async def test_a_large_body_reaches_hot_routes_and_the_application_whole(house: House) -> None:
    await house.open()
    peer = await house.connect()
    body = bytes(range(256)) * 4 * 1024 * 5
    assert (await peer.ask(post("/hot", body))).json()["body"] == len(body)
    assert house.seen[0].body == body
    told = (await peer.ask(post("/app/x", body))).json()
    assert told["body"] == len(body)
    assert told["pieces"] > 10


async def test_a_body_that_the_application_did_not_read_is_not_taken_for_a_request(house: House) -> None:
    await house.open()
    peer = await house.connect()
    answer = await peer.ask(request("POST", "/app/unread", "Content-Length: 200000"))
    assert answer.status == 202
    await peer.send(get("/hot?smuggled") * 20 + bytes(200_000 - 20 * len(get("/hot?smuggled"))))
    assert (await peer.ask(get("/hot"))).status == 200
    assert [seen.path for seen in house.seen] == ["/hot"]


# Keeping connections


async def test_a_client_of_1_0_is_answered_and_left(house: House) -> None:
    await house.open()
    for path in ("/hot", "/app/x"):
        peer = await house.connect()
        answer = await peer.ask(get(path, version="1.0"))
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await peer.rest() == b""


async def test_a_client_of_1_0_may_ask_to_stay(house: House) -> None:
    await house.open()
    peer = await house.connect()
    answer = await peer.ask(get("/hot", "Connection: keep-alive", version="1.0"))
    assert answer.headers["connection"] == "keep-alive"
    assert (await peer.ask(get("/hot", version="1.0"))).status == 200


async def test_a_client_of_1_0_gets_no_chunks(house: House) -> None:
    await house.open()
    house.may_go_on.set()
    peer = await house.connect()
    answer = await peer.ask(get("/app/stream", version="1.0"))
    assert "transfer-encoding" not in answer.headers
    assert answer.body == b"end"


async def test_who_asks_for_it_is_left_after_the_answer(house: House) -> None:
    await house.open()
    for path in ("/hot", "/app/x"):
        peer = await house.connect()
        answer = await peer.ask(get(path, "Connection: close"))
        assert answer.headers["connection"] == "close"
        assert await peer.rest() == b""


async def test_who_closes_only_its_direction_is_still_answered(house: House) -> None:
    await house.open()
    peer = await house.connect()
    await peer.send(get("/later") + get("/app/x"))
    await house.is_held.wait()
    peer.writer.write_eof()
    await asyncio.sleep(0.01)
    house.held[0].respond(200, b"late")
    assert (await peer.answer()).body == b"late"
    assert (await peer.answer()).json()["path"] == "/app/x"
    assert await peer.rest() == b""


async def test_who_waits_just_for_the_client_to_go_is_told_once(house: House) -> None:
    await house.open()
    peer = await house.connect()
    await peer.send(get("/later?watched"))
    await house.is_held.wait()
    await peer.close()
    await house.is_disconnected.wait()
    request = house.held[0]
    assert (house.gone, request.is_disconnected) == ([request], True)
    request.respond(200, b"to nobody")
    await until(lambda: not house.door.connections, "a connection is still open", every_s=0)
    assert house.gone == [request]


async def test_the_application_is_told_that_its_client_has_gone(house: House) -> None:
    await house.open()
    peer = await house.connect()
    await peer.send(get("/app/forever"))
    await house.has_started.wait()
    peer.writer.transport.abort()
    await asyncio.wait_for(house.was_left.wait(), 10)


async def test_who_waits_its_turn_is_not_begun_before_all_answers_have_left(house: House) -> None:
    await house.open(write_buffer_bytes=64 * MIB)
    peer = await house.connect(is_slow=True)
    asked = get("/huge") * 12 + get("/turn") * 2
    await peer.send(asked)
    await house.has_read(len(asked))
    assert [seen.path for seen in house.seen] == []
    for _ in range(12):
        assert (await peer.answer()).status == 200
    for _ in range(2):
        assert (await peer.answer()).json()["hot"] == "/turn"


async def test_what_is_abandoned_is_closed_behind_what_was_answered(house: House) -> None:
    await house.open()
    peer = await house.connect()
    await peer.send(get("/hot") + get("/later") + get("/hot"))
    await house.is_held.wait()
    house.held[0].abandon()
    house.held[0].abandon()
    assert (await peer.answer()).json()["hot"] == "/hot"
    assert await peer.rest() == b""
    house.held[0].respond(200, b"to nobody")
