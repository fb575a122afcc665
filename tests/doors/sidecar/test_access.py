"""Who calls, and what they may do: the same rights as at every door."""

import asyncio
from base64 import b64encode
from pathlib import Path
from threading import Event

import grpc
import pytest
from argon2 import PasswordHasher

from penstock.app import Server
from penstock.core.access.identity import Identity
from penstock.core.settings import AccessSettings
from penstock.doors.sidecar.door import SidecarDoor
from penstock.doors.sidecar.transport.auth import authorization_of
from penstock.errors import BadCredentials
from penstock.net.address_limits import AddressLimitSettings
from penstock.net.password_checks import PER_ADDRESS_AT_ONCE
from penstock.wire.sidecar.messages import nexusd
from tests.doors.serving import Start
from tests.doors.sidecar.calling import TIMEOUT_S, Client, Metadata, refusal
from tests.doors.sidecar.transport.serving import unary_unary
from tests.support.waiting import until

QUICK = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
RULES = """
user alice
both a/#
user bob
subscribe a/+
user carol
publish a/#
user *
both own/%c/#
"""
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
PERMISSION_DENIED = grpc.StatusCode.PERMISSION_DENIED


def as_pair(user: str, password: str = "") -> Metadata:
    return (("username", user), ("password", password or user))


def as_basic(user: str) -> Metadata:
    return (("authorization", f"Basic {b64encode(f'{user}:{user}'.encode()).decode()}"),)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """The file that says who may do what."""
    path = tmp_path / "rules"
    path.write_text(RULES, encoding="utf-8")
    return path


@pytest.fixture
async def guarded(start: Start, tmp_path: Path, rules: Path) -> Server:
    """A server that lets in alice, bob and carol, whose passwords are their names."""
    lines = [f"{user}:{QUICK.hash(user)}" for user in ("alice", "bob", "carol")]
    (tmp_path / "passwords").write_text("\n".join(lines), encoding="utf-8")
    access = AccessSettings(password_file=str(tmp_path / "passwords"), acl_file=str(rules))
    limits = AddressLimitSettings(failures_per_address=0.001, failure_burst_per_address=5)
    return await start(access=access, connections=limits)


@pytest.mark.parametrize("metadata", [as_pair("alice"), as_basic("alice")])
async def test_a_password_opens_the_door(guarded: Server, metadata: Metadata) -> None:
    async with Client(guarded, metadata) as alice:
        events = await alice.subscribe("a/b")
        assert (await alice.publish("a/b", b"1")).subscriber_count == 1
        assert await events.payloads(1) == [b"1"]


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        as_pair("alice", "wrong"),
        as_pair("nobody"),
        (("authorization", "Basic %%%"),),
        (("authorization", "Digest x"),),
        (("username", "alice"),),
        (*as_pair("alice"), ("username", "bob")),
    ],
)
async def test_strangers_neither_publish_nor_subscribe(guarded: Server, metadata: Metadata) -> None:
    async with Client(guarded, metadata) as stranger:
        code, text = await refusal(stranger.publish("a/b"))
        assert (code, text.partition(":")[0]) == (UNAUTHENTICATED, "bad-credentials")
        code, _ = await stranger.ask(nexusd.SubscribeRequest(topics=["a/b"])).end()
        assert code is UNAUTHENTICATED
        assert (await refusal(stranger.topics()))[0] is UNAUTHENTICATED
    assert guarded.broker.counters.authentications_failed == 3
    assert guarded.broker.counters.published == 0


async def test_an_address_that_is_wrong_too_often_is_put_off(guarded: Server) -> None:
    async with Client(guarded, as_pair("alice", "wrong")) as stranger:
        codes = [(await refusal(stranger.publish("a/b")))[0] for _ in range(6)]
    assert codes == [UNAUTHENTICATED] * 5 + [grpc.StatusCode.RESOURCE_EXHAUSTED]


async def test_each_call_of_a_channel_is_by_whom_it_says(guarded: Server) -> None:
    async with Client(guarded) as client:
        request = nexusd.PublishRequest(topic="a/b")
        assert (await client.stub.publish(request, metadata=as_pair("carol"))).success
        code, _ = await refusal(client.stub.publish(request, metadata=as_pair("bob")))
        assert code is PERMISSION_DENIED
        code, _ = await refusal(client.stub.publish(request))
        assert code is UNAUTHENTICATED


async def test_whoever_may_only_publish_does_not_subscribe(guarded: Server) -> None:
    async with Client(guarded, as_pair("carol")) as carol:
        code, text = await carol.ask(nexusd.SubscribeRequest(topics=["a/b"])).end()
        assert (code, text.partition(":")[0]) == (PERMISSION_DENIED, "not-authorized")
        assert not guarded.broker.sessions
        assert guarded.broker.counters.actions_forbidden == 1


async def test_one_forbidden_topic_is_enough_to_be_refused(guarded: Server) -> None:
    async with Client(guarded, as_pair("bob")) as bob:
        code, _ = await bob.ask(nexusd.SubscribeRequest(topics=["a/b", "c"])).end()
        assert code is PERMISSION_DENIED
        await until(lambda: not guarded.broker.sessions, "a session is still there")
        assert len(guarded.broker.paused) == 0


async def test_topics_that_begin_with_a_dollar_are_the_servers(client: Client) -> None:
    assert (await refusal(client.publish("$SYS/x")))[0] is PERMISSION_DENIED


async def test_a_subscription_of_another_user_is_unknown(guarded: Server) -> None:
    async with Client(guarded, as_pair("alice")) as alice, Client(guarded, as_pair("bob")) as bob:
        events = await alice.subscribe("a/b")
        for _ in range(2):  # while it is live, and when it is paused
            assert not (await bob.unsubscribe(events.id)).success
            request = nexusd.ResumeSubscribeRequest(subscription_id=events.id)
            assert (await bob.ask(request).end())[0] is grpc.StatusCode.NOT_FOUND
            assert (await alice.unsubscribe(events.id, pause=True)).success
        again, _ = await alice.resume(events.id)
        assert again.id == events.id


async def test_a_stream_ends_when_its_right_is_withdrawn(guarded: Server, rules: Path) -> None:
    async with Client(guarded, as_pair("bob")) as bob:
        events = await bob.subscribe("a/b")
        rules.write_text("user alice\nboth a/#\n", encoding="utf-8")
        guarded.reload()
        code, text = await events.end()
        assert (code, text.partition(":")[0]) == (PERMISSION_DENIED, "not-authorized")
        request = nexusd.ResumeSubscribeRequest(subscription_id=events.id)
        assert (await bob.ask(request).end())[0] is PERMISSION_DENIED
        await until(lambda: not guarded.broker.sessions, "a session is still there")


async def test_a_stream_ends_when_its_user_is_unknown_any_more(guarded: Server, tmp_path: Path) -> None:
    async with Client(guarded, as_pair("bob")) as bob:
        events = await bob.subscribe("a/b")
        (tmp_path / "passwords").write_text(f"alice:{QUICK.hash('alice')}\n", encoding="utf-8")
        guarded.reload()
        code, _ = await events.end()
        assert code is UNAUTHENTICATED
        assert len(guarded.broker.paused) == 0


async def test_only_topics_that_may_be_read_are_listed(guarded: Server) -> None:
    async with Client(guarded, as_pair("alice")) as alice, Client(guarded, as_pair("bob")) as bob:
        for topic in ("a/b", "a/b/c"):
            await alice.publish(topic)
        assert set(await alice.topics()) == {"a/b", "a/b/c"}
        assert set(await bob.topics()) == {"a/b"}


def test_credentials_are_read_from_metadata() -> None:
    assert authorization_of([("x", "y"), ("authorization", "Bearer a:b")]) == b"Bearer a:b"
    assert authorization_of([("username", "a"), ("password", "b:c")]) == b"Basic " + b64encode(b"a:b:c")
    assert authorization_of([("trace-bin", b"\x00")]) is None


@pytest.mark.parametrize(
    "metadata", [(*as_basic("a"), *as_pair("a")), (("password", "x"),), (*as_basic("a"), *as_basic("a"))]
)
def test_credentials_that_contradict_each_other_are_refused(metadata: Metadata) -> None:
    with pytest.raises(BadCredentials):
        authorization_of(metadata)


async def test_a_password_that_takes_long_to_check_delays_nobody_else(
    guarded: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Client(guarded, as_pair("alice")) as alice, Client(guarded, as_pair("carol")) as carol:
        await carol.publish("a/b")  # and is known from now on
        gate, check = Event(), guarded.broker.access.verify
        asked: list[str | None] = []

        def verify(_: object, user: str | None, password: bytes | None) -> bool:
            asked.append(user)
            assert gate.wait(TIMEOUT_S)
            return check(user, password)

        monkeypatch.setattr(type(guarded.broker.access), "verify", verify)
        try:
            waiting = asyncio.ensure_future(alice.publish("a/b"))
            await until(lambda: asked, "no request was made")
            assert (await carol.publish("a/b")).success
            assert not waiting.done()
        finally:
            gate.set()
        assert (await waiting).success


async def test_a_call_too_many_is_asked_to_come_again(
    guarded: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Event()
    monkeypatch.setattr(type(guarded.broker.access), "verify", lambda *_: gate.wait(TIMEOUT_S))
    checks = guarded._password_checks
    checks._limit = 1
    async with Client(guarded) as client:
        request = nexusd.PublishRequest(topic="a/b")
        calls = [
            asyncio.ensure_future(client.stub.publish(request, metadata=as_pair("alice", f"{number}")))
            for number in range(PER_ADDRESS_AT_ONCE + 1)
        ]
        try:
            await until(lambda: checks.waiting == 1, "no check waits")
            code, text = await refusal(client.stub.publish(request, metadata=as_pair("bob")))
        finally:
            gate.set()
        assert all([(await call).success for call in calls])
    assert (code, text.partition(":")[0]) == (grpc.StatusCode.UNAVAILABLE, "storage-unavailable")
    assert checks.refused["busy"] == 1


async def test_a_call_that_is_cancelled_while_its_password_is_checked_does_nothing(
    guarded: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Client(guarded, as_pair("alice")) as alice:
        gate, asked, door = Event(), Event(), guarded.doors[-1]
        assert isinstance(door, SidecarDoor)

        def verify(*_: object) -> bool:
            asked.set()
            return gate.wait(TIMEOUT_S)

        monkeypatch.setattr(type(guarded.broker.access), "verify", verify)
        try:
            events = alice.ask(nexusd.SubscribeRequest(topics=["a/b"]))
            await until(asked.is_set, "no request was made")
            events.call.cancel()
            await until(lambda: not door.admission.checking, "a check is still running")
        finally:
            gate.set()
        assert not guarded.broker.sessions
        assert (await alice.publish("a/b")).subscriber_count == 0


async def test_health_needs_no_password(guarded: Server) -> None:
    async with Client(guarded) as stranger:
        check = unary_unary(stranger.channel, "/grpc.health.v1.Health/Check")
        assert await check(b"", timeout=TIMEOUT_S) == b"\x08\x01"


async def test_an_old_password_is_good_for_nothing_on_an_open_connection(
    guarded: Server, tmp_path: Path
) -> None:
    async with Client(guarded, as_pair("alice")) as alice:
        await alice.publish("a/b")
        (tmp_path / "passwords").write_text(f"alice:{QUICK.hash('other')}\n", encoding="utf-8")
        guarded.reload()
        assert (await refusal(alice.publish("a/b")))[0] is UNAUTHENTICATED


async def test_a_stream_has_the_rights_of_any_call_of_its_user(guarded: Server) -> None:
    async with Client(guarded, as_pair("alice")) as alice:
        events = await alice.subscribe("a/b")
        assert guarded.broker.sessions[events.id].identity == Identity("alice", "")


async def test_rules_for_a_client_go_by_the_name_that_it_gives_itself(guarded: Server) -> None:
    async with Client(guarded, as_pair("bob")) as client:
        events = await client.subscribe("own/pump/#", client_id="pump")
        async with Client(guarded, (*as_pair("carol"), ("x-client-id", "pump"))) as pump:
            assert (await pump.publish("own/pump/speed", b"9")).subscriber_count == 1
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await pump.publish("own/valve/speed")
            assert caught.value.code() is PERMISSION_DENIED
        assert await events.payloads(1) == [b"9"]
        request = nexusd.SubscribeRequest(topics=["own/pump/#"], client_id="valve")
        assert (await client.ask(request).end())[0] is PERMISSION_DENIED


async def test_a_subscription_keeps_the_name_of_its_client(guarded: Server) -> None:
    async with Client(guarded, as_pair("bob")) as client:
        events = await client.subscribe("own/pump/#", client_id="pump")
        await client.unsubscribe(events.id, pause=True)
        again, _ = await client.resume(events.id)
        assert again.id == events.id


async def test_a_stream_goes_by_the_name_of_its_call_if_it_has_no_other(guarded: Server) -> None:
    async with Client(guarded, (*as_pair("bob"), ("x-client-id", "pump"))) as client:
        assert (await client.subscribe("own/pump/#")).id


async def test_a_name_of_a_client_that_is_too_long_is_refused(guarded: Server) -> None:
    async with Client(guarded, (*as_pair("alice"), ("x-client-id", "x" * 257))) as client:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.publish("a/b")
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
