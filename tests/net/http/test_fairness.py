"""One connection among others: how much of a turn of the loop it is given."""

import asyncio
from itertools import count

from penstock.net.turn_shares import SHARE_S, TurnShares
from tests.net.http.serving import House, get, post, request
from tests.support.waiting import TIMEOUT_S, until

ABOUT_A_TURN = 256
"""Sixty-four requests, and what one more piece can hold."""


def slow_down(house: House) -> None:
    """Let every step take a whole share of its turn."""
    readings = count()
    house.door.shares = TurnShares(asyncio.get_running_loop(), lambda: next(readings) * SHARE_S)


async def test_many_requests_at_once_are_answered_over_several_turns(house: House) -> None:
    await house.open()
    slow_down(house)
    peer = await house.connect()
    await peer.send(get() * 2_000)
    turns = []
    async with asyncio.timeout(TIMEOUT_S):
        while len(house.seen) < 2_000:
            before = len(house.seen)
            await asyncio.sleep(0)
            turns.append(len(house.seen) - before)
    assert max(turns) < ABOUT_A_TURN
    assert [(await peer.answer()).status for _ in range(2_000)] == [200] * 2_000


async def test_others_are_answered_between_the_requests_of_one(house: House) -> None:
    await house.open()
    slow_down(house)
    greedy, witness = await house.connect(), await house.connect()
    assert (await witness.ask(get("/open"))).status == 200
    await greedy.send(get() * 2_000)
    await until(lambda: len(house.seen) >= 2, "fewer than 2 requests were seen", every_s=0)
    assert (await witness.ask(get("/open"))).status == 200
    assert len(house.seen) < 2_000


async def test_a_body_in_tiny_chunks_is_read_over_several_turns(house: House) -> None:
    await house.open()
    peer = await house.connect()
    await peer.send(request("POST", "/hot", "Transfer-Encoding: chunked") + b"1\r\nx\r\n" * 20_000)
    steps, bodies = [], house.door.bodies
    async with asyncio.timeout(TIMEOUT_S):
        while bodies.held_bytes < 20_000:
            before = bodies.held_bytes
            await asyncio.sleep(0)
            steps.append(bodies.held_bytes - before)
    assert max(steps) < 20_000
    assert (await peer.ask(b"0\r\n\r\n")).json()["body"] == 20_000


async def test_a_large_body_is_read_over_several_turns_and_what_follows_it_too(house: House) -> None:
    await house.open()
    slow_down(house)
    peer = await house.connect()
    body = bytes(range(256)) * 4_000
    peer.writer.write(post("/hot", body) + get() * 500 + get("/app/x"))
    steps, bodies = [], house.door.bodies
    async with asyncio.timeout(TIMEOUT_S):
        while not house.seen:
            before = bodies.held_bytes
            await asyncio.sleep(0)
            steps.append(bodies.held_bytes - before)
    assert max(steps) < 256 * 1024  # a step that waited, and a read
    assert house.seen[0].body == body
    assert [(await peer.answer()).status for _ in range(502)] == [200] * 502
