"""Who is asking: Basic, Bearer, certificates and nobody, and what becomes of a request meanwhile."""

import asyncio
import base64
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from penstock.core.access.access import OpenAccess
from penstock.core.access.file_access import FileAccess
from penstock.core.access.identity import Identity
from penstock.core.runtime.clock import SystemClock
from penstock.errors import BadCredentials
from penstock.net import door
from penstock.net.address_limits import AddressLimits, AddressLimitSettings
from penstock.net.http.auth import Authenticator, parse_authorization
from penstock.net.http.request import HIGH_WATER_BYTES
from penstock.net.password_checks import PER_ADDRESS_AT_ONCE, PasswordChecks
from tests.net.http.serving import MIB, House, Peer, get, post, request
from tests.net.slow_access import SlowAccess, has_begun
from tests.support.clock import ManualClock
from tests.support.waiting import until

QUICK = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
ALICE = "Authorization: Basic " + base64.b64encode(b"alice:secret:x").decode()
WRONG = "Authorization: Basic " + base64.b64encode(b"alice:wrong").decode()


@pytest.fixture
def passwords(tmp_path: Path) -> Path:
    file = tmp_path / "passwords"
    file.write_text(f"alice:{QUICK.hash('secret:x')}\nj\xfcrgen:{QUICK.hash('pw')}\n", encoding="utf-8")
    return file


def access(passwords: Path, *, anonymous: bool = False) -> FileAccess:
    return FileAccess.load(passwords, None, anonymous)


# Headers


@pytest.mark.parametrize(
    ("header", "user", "password"),
    [
        (b"Basic " + base64.b64encode(b"alice:secret"), "alice", b"secret"),
        (b"basic  " + base64.b64encode(b"alice:se:cret"), "alice", b"se:cret"),
        (b"Basic " + base64.b64encode("jürgen:".encode()), "jürgen", b""),
        (b"Basic " + base64.b64encode(b":x"), "", b"x"),
        (b"Bearer alice:secret", "alice", b"secret"),
        (b"bearer " + base64.b64encode(b"alice:secret"), "alice", b"secret"),
        (b"Bearer " + base64.urlsafe_b64encode(b"alice:??>>").rstrip(b"="), "alice", b"??>>"),
    ],
)
def test_user_and_password_are_found(header: bytes, user: str, password: bytes) -> None:
    assert parse_authorization(header) == (user, password)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"Basic",
        b"Basic ",
        b"Basic ####",
        b"Basic YWxpY2U=",
        b"Digest a:b",
        b"Basic alice:x",
        b"Bearer abc",
        b"Basic /////zo=",
        b"Bearer \xff:x",
        b"Basic YWxp-#Y2U6eA==",
        b"Bearer YWxp!!!!Y2U6Pz8-Pg",
        b"Basic YWxp!!!!Y2U6c2VjcmV0",
        b"Basic YWxpY2U6c2Vj\tcmV0-_",
        b"Basic YWxpY2U6e-/A",
    ],
)
def test_what_is_no_authorization_is_refused(header: bytes) -> None:
    with pytest.raises(BadCredentials):
        parse_authorization(header)


# At the door


async def test_with_a_password_file_nobody_comes_in_without_a_password(house: House, passwords: Path) -> None:
    await house.open(access=access(passwords))
    peer = await house.connect()
    for path in ("/hot", "/app/x", "/api/v1/app/x"):
        for header in ("X: no", WRONG, "Authorization: Nonsense"):
            answer = await peer.ask(get(path, header))
            assert answer.status == 401
            assert answer.headers["www-authenticate"].startswith('Basic realm="penstock"')
            if path.startswith("/api"):
                assert answer.json()["code"] == "bad-credentials"
    assert house.seen == []
    assert house.broker.counters.authentications_failed == 6


async def test_the_right_password_comes_in_at_hot_routes_and_the_application(
    house: House, passwords: Path
) -> None:
    await house.open(access=access(passwords))
    peer = await house.connect()
    bearer = "Authorization: Bearer alice:secret:x"
    for header in (ALICE, bearer):
        assert (await peer.ask(get("/hot", header))).json()["user"] == "alice"
        assert (await peer.ask(get("/app/x", header, "X-Client-Id: c1"))).json()["client_id"] == "c1"
    assert (await peer.ask(get("/hot"))).status == 401
    assert house.broker.counters.authentications_failed == 0


async def test_open_paths_need_no_password(house: House, passwords: Path) -> None:
    await house.open(access=access(passwords))
    peer = await house.connect()
    for path in ("/open", "/health", "/ready", "/livez"):
        assert (await peer.ask(get(path, WRONG))).status == 200
    for path in ("/healthy", "/health/x", "/HEALTH"):
        assert (await peer.ask(get(path))).status == 401


async def test_the_client_id_is_what_the_client_says(house: House) -> None:
    await house.open()
    peer = await house.connect()
    await peer.send(get("/hot", "X-Client-Id: m\xc3\xbcller") + get("/hot"))
    assert [(await peer.answer()).status for _ in range(2)] == [200, 200]
    assert [seen.client_id for seen in house.seen] == ["müller", ""]


@pytest.mark.parametrize("value", ["\xff", "a" * 300, " "])
async def test_a_client_id_that_is_none_is_refused(house: House, value: str) -> None:
    await house.open()
    peer = await house.connect()
    assert (await peer.ask(get("/hot", f"X-Client-Id: {value}"))).status == 400
    assert (await peer.ask(get("/hot"))).status == 200


async def test_a_stranger_cannot_make_us_read_its_body(house: House, passwords: Path) -> None:
    await house.open(access=access(passwords))
    peer = await house.connect()
    answer = await peer.ask(request("POST", "/hot", "Content-Length: 1000000"))
    assert answer.status == 401
    await peer.send(bytes(1_000_000) + get("/open"))
    assert (await peer.answer()).status == 200


async def test_requests_wait_in_order_while_a_password_is_checked(house: House) -> None:
    slow = SlowAccess()
    await house.open(access=slow)
    peer = await house.connect()
    await peer.send(post("/hot", b"1", ALICE) + get("/app/x", ALICE) + post("/hot", b"2", ALICE))
    await has_begun(slow)
    assert house.seen == []
    slow.may_end.set()
    assert [(await peer.answer()).status for _ in range(3)] == [200, 200, 200]
    assert [seen.body for seen in house.seen] == [b"1", b"2"]
    assert slow.checks == 1  # on this connection it is known from then on


async def test_others_are_served_while_a_password_is_checked(house: House) -> None:
    slow = SlowAccess()
    await house.open(access=slow)
    peer = await house.connect()
    await peer.send(get("/hot", ALICE))
    await has_begun(slow)
    assert (await house.ask(get("/open"))).status == 200
    slow.may_end.set()
    assert (await peer.answer()).status == 200


def named(number: int) -> str:
    """The credentials of one of many."""
    return "Authorization: Basic " + base64.b64encode(b"user%d:x" % number).decode()


async def waiting(house: House, count: int, *, first: int = 0) -> list[Peer]:
    """Peers of whom each waits for the check of a password of its own."""
    peers = [await house.connect() for _ in range(count)]
    before = house.door.requests
    for number, peer in enumerate(peers, first):
        await peer.send(get("/hot", named(number)))
    await until(lambda: house.door.requests >= before + count, "not all requests were received", every_s=0)
    return peers


UNLIMITED = AddressLimitSettings(failures_per_address=0)


async def test_few_passwords_are_checked_at_once(house: House) -> None:
    slow = SlowAccess()
    await house.open(access=slow, address_limits=AddressLimits(UNLIMITED, SystemClock()))
    peers = await waiting(house, 12)
    for _ in range(PER_ADDRESS_AT_ONCE):
        await has_begun(slow)
    assert slow.checks == PER_ADDRESS_AT_ONCE
    slow.may_end.set()
    assert [(await peer.answer()).status for peer in peers] == [200] * 12
    assert slow.most == PER_ADDRESS_AT_ONCE


@pytest.mark.parametrize("how", ["abort", "close"])
async def test_for_clients_that_have_gone_nothing_is_checked(house: House, how: str) -> None:
    slow = SlowAccess()
    await house.open(access=slow, address_limits=AddressLimits(UNLIMITED, SystemClock()))
    peers = await waiting(house, 12)
    for _ in range(PER_ADDRESS_AT_ONCE):
        await has_begun(slow)
    for peer in peers:
        getattr(peer.writer.transport, how)()
    await until(lambda: not house.door.connections, "a connection is still open")
    slow.may_end.set()
    assert (await house.ask(get("/hot", ALICE))).status == 200
    assert slow.checks == PER_ADDRESS_AT_ONCE + 1


async def test_too_many_who_wait_are_asked_to_come_again(house: House) -> None:
    slow, limits = SlowAccess(), AddressLimits(UNLIMITED, SystemClock())
    checks = PasswordChecks(slow, asyncio.get_running_loop(), limits, limit=8)
    await house.open(access=slow, address_limits=limits, password_checks=checks)
    peers = await waiting(house, PER_ADDRESS_AT_ONCE + 8)
    answer = await house.ask(get("/api/v1/refused", ALICE))
    assert (answer.status, answer.json()["code"], answer.headers["retry-after"]) == (503, "too-busy", "1")
    assert answer.json()["retryable"]
    slow.may_end.set()
    assert {(await peer.answer()).status for peer in peers} == {200}
    assert (await house.ask(get("/hot", ALICE))).status == 200


async def test_those_who_come_with_the_same_password_wait_for_one_check(house: House) -> None:
    slow = SlowAccess()
    await house.open(access=slow)
    peers = [await house.connect() for _ in range(20)]
    for peer in peers:
        await peer.send(get("/hot", ALICE))
    await until(lambda: house.door.requests >= len(peers), "not every peer's request was received", every_s=0)
    await peers.pop().close()  # the others still wait
    slow.may_end.set()
    assert {(await peer.answer()).status for peer in peers} == {200}
    assert slow.checks == 1


async def test_an_address_that_was_wrong_too_often_has_to_wait(house: House, passwords: Path) -> None:
    clock = ManualClock()
    settings = AddressLimitSettings(failures_per_address=0.5, failure_burst_per_address=3)
    await house.open(access=access(passwords), clock=clock, address_limits=AddressLimits(settings, clock))
    for _ in range(9):
        assert (await house.ask(get("/hot", ALICE))).status == 200  # what is right never counts
        house.broker.access.reload()  # type: ignore[attr-defined]
    for number in range(3):
        assert (await house.ask(get("/hot", named(number)))).status == 401
    answer = await house.ask(get("/api/v1/refused", named(4)))
    assert (answer.status, answer.json()["code"]) == (429, "quota-exceeded")
    assert answer.headers["retry-after"] == "1"
    assert (await house.ask(get("/hot"))).status == 401  # who gives no password costs nothing
    assert (await house.ask(get("/open"))).status == 200
    clock.advance(2)
    assert (await house.ask(get("/hot", ALICE))).status == 200
    assert (await house.ask(get("/hot", named(5)))).status == 401
    assert (await house.ask(get("/hot", named(6)))).status == 429
    assert (await house.ask(get("/hot", ALICE))).status == 200  # it is known who that is


async def test_what_comes_during_a_check_is_kept_and_a_lot_of_it_waits_outside(house: House) -> None:
    slow = SlowAccess()
    await house.open(access=slow)
    peer = await house.connect()
    body = bytes(8 * MIB)
    sending = asyncio.create_task(peer.send(post("/large", body, ALICE)))
    await has_begun(slow)
    await house.has_read(HIGH_WATER_BYTES)
    for _ in range(100):
        await asyncio.sleep(0)
    assert house.broker.counters.bytes_received < MIB
    slow.may_end.set()
    await sending
    assert (await peer.answer()).json()["body"] == len(body)


async def test_a_check_that_breaks_lets_nobody_in(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(SlowAccess):
        def verify(self, user: str | None, password: bytes | None) -> bool:
            raise RuntimeError("out of memory")

    await house.open(access=Broken())
    assert (await house.ask(get("/hot", ALICE))).status == 503
    assert house.seen == []


async def test_files_that_are_read_again_during_a_check_are_asked_again(house: House) -> None:
    slow = SlowAccess()
    await house.open(access=slow)
    peer = await house.connect()
    await peer.send(get("/hot", ALICE))
    await has_begun(slow)
    slow.generation += 1
    slow.is_good = False
    slow.may_end.set()
    assert (await peer.answer()).status == 401
    assert slow.checks == 2


async def test_after_a_reload_the_next_request_is_decided_anew(house: House, passwords: Path) -> None:
    known = access(passwords)
    await house.open(access=known)
    peer = await house.connect()
    assert (await peer.ask(get("/hot", ALICE))).status == 200
    passwords.write_text(f"alice:{QUICK.hash('another')}\n")
    known.reload()
    assert (await peer.ask(get("/hot", ALICE))).status == 401


# Certificates


async def test_a_certificate_names_its_owner_whatever_the_header_says() -> None:
    loop = asyncio.get_running_loop()
    limits = AddressLimits(AddressLimitSettings(), SystemClock())
    checks = PasswordChecks(OpenAccess(), loop, limits)
    credentials = Authenticator(OpenAccess(), checks, is_named_by_certificate=True)
    owner = door.Peer("10.0.0.1", 1, "carol")
    assert credentials.decide_now(b"Basic !", "c", owner) == Identity("carol", "c", is_certified=True)
    assert credentials.decide_now(None, "c", door.Peer("10.0.0.1", 1)) == Identity(None, "c")
    unnamed = Authenticator(OpenAccess(), checks, is_named_by_certificate=False)
    assert unnamed.decide_now(None, "c", owner) == Identity(None, "c")
