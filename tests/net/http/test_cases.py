"""The catalogue of bytes: what is answered and what is refused, whole and in pieces."""

import pytest

from tests.net.http.cases import BAD, GOOD, Bad, Good
from tests.net.http.serving import House, get, post


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case.name)
async def test_good_bytes_are_answered(house: House, case: Good) -> None:
    await house.open()
    peer = await house.connect()
    await peer.send(case.data)
    for status in case.statuses:
        assert (await peer.answer()).status == status
    if case.body:
        assert house.seen[0].body == case.body


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.name)
async def test_bad_bytes_are_refused_and_end_the_connection(house: House, case: Bad) -> None:
    await house.open()
    peer = await house.connect()
    answer = await peer.ask(case.data)
    assert answer.status == case.status
    assert answer.headers["connection"] == "close"
    assert answer.json()["detail"]
    assert await peer.rest() == b""
    assert house.seen == []
    assert house.broker.counters.wire_errors == 1


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.name)
async def test_what_is_smuggled_behind_bad_bytes_is_never_asked(house: House, case: Bad) -> None:
    await house.open()
    peer = await house.connect()
    await peer.send(get() + case.data + get("/hot?smuggled"))
    assert (await peer.answer()).status == 200
    assert (await peer.answer()).status == case.status
    assert await peer.rest() == b""
    assert len(house.seen) == 1


CUT = [case for case in GOOD if len(case.data) < 200 and b"close" not in case.data]


@pytest.mark.parametrize("case", CUT, ids=lambda case: case.name)
async def test_a_request_may_be_cut_anywhere(house: House, case: Good) -> None:
    await house.open()
    peers = [await house.connect() for _ in range(1, len(case.data))]
    for at, peer in enumerate(peers, 1):
        await peer.send(case.data[:at])
    await house.has_read(sum(range(1, len(case.data))))
    for at, peer in enumerate(peers, 1):
        await peer.send(case.data[at:])
    for peer in peers:
        for status in case.statuses:
            assert (await peer.answer()).status == status


async def test_a_request_may_come_byte_by_byte(house: House) -> None:
    await house.open()
    peer = await house.connect()
    data = post("/hot", b"abc") + get("/app/x")
    for at in range(len(data)):
        await peer.send(data[at : at + 1])
        await house.has_read(at + 1)
    assert (await peer.answer()).json()["body"] == 3
    assert (await peer.answer()).json()["path"] == "/app/x"
