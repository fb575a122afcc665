"""Attempts that only gRPC makes possible.

Many names share a connection, streams are resumed by their id, and calls go on for longer than the rights of
who makes them.
"""

import asyncio
import ssl
from itertools import cycle
from typing import Any

import pytest

from penstock.wire.grpc import Status
from penstock.wire.sidecar.messages import nexusd
from penstock.wire.sidecar.messages import penstock as own
from tests.access.callers import CAROL, MALLORY, OWNER, ask_for_peers, enter, enter_own, open_channel
from tests.access.calls import OWN, SIDECAR, OwnVisitor, SidecarVisitor, authorization_of, words_of
from tests.access.channels import Channel
from tests.access.entrances import Credentials
from tests.access.naive import Rights
from tests.access.scene import RIGHTS, Scene
from tests.access.stories import NO_SECRETS
from tests.support.certificates import Authority

MODES = nexusd.GapRecoveryMode.values()
NOT_AUTHORIZED = "not-authorized"


# Many names on one connection


async def test_each_call_on_a_connection_has_the_rights_of_its_own_name(scene: Scene) -> None:
    channel = await open_channel(scene)
    owner, mallory = (
        SidecarVisitor(channel, authorization_of(who), "", cycle(("x",))) for who in (OWNER, MALLORY)
    )
    for _ in range(3):
        assert ("secret", b"") in await owner.pry()
        assert ("secret", b"") not in await mallory.pry()
        assert await ask_for_peers(channel, []) is Status.UNAUTHENTICATED
        assert (
            await ask_for_peers(channel, authorization_of(Credentials("owner", b"guess")))
            is Status.UNAUTHENTICATED
        )
    answers = await asyncio.gather(*(who.publish("secret", b"said") for who in (owner, mallory) * 16))
    assert answers == [True, False] * 16
    assert not await mallory.subscribe("secret")
    assert len(await scene.forged()) == 16


async def test_names_without_end_on_one_connection_open_nothing(scene: Scene) -> None:
    channel = await open_channel(scene)
    assert await ask_for_peers(channel, authorization_of(OWNER)) is Status.OK
    for number in range(40):  # more than a connection remembers
        guess = authorization_of(Credentials("owner", b"guess %d" % number))
        assert await ask_for_peers(channel, guess) is Status.UNAUTHENTICATED
    assert await ask_for_peers(channel, authorization_of(MALLORY)) is Status.OK


async def test_password_that_was_changed_opens_nothing_on_a_connection_where_it_did(scene: Scene) -> None:
    channel, files = await open_channel(scene), scene.guarded.files
    for _ in range(3):  # what is known after the first is known at once
        assert await ask_for_peers(channel, authorization_of(CAROL)) is Status.OK
    files.change_password("carol", b"another")
    try:
        await scene.guarded.reload()
        assert await ask_for_peers(channel, authorization_of(CAROL)) is Status.UNAUTHENTICATED
        assert await ask_for_peers(channel, authorization_of(Credentials("carol", b"another"))) is Status.OK
    finally:
        files.change_password("carol", CAROL.password or b"")


async def test_who_has_another_password_goes_on_with_it_where_it_was(scene: Scene) -> None:
    carol, files = await enter(scene, "carol"), scene.guarded.files
    info = await carol.follow("Subscribe", nexusd.SubscribeRequest(topics=["secret/#"]))
    assert info is not None
    another = Credentials("carol", b"another")
    files.change_password("carol", b"another")
    try:
        await scene.guarded.reload()
        await scene.tell_everything()
        assert await carol.heard() == []
        assert carol.endings == [Status.UNAUTHENTICATED]
        assert await carol.resume(info.subscription_id) is None, "not with the old one"
        again = SidecarVisitor(carol.channel, authorization_of(another), "", cycle(("x",)))
        assert await again.resume(info.subscription_id) is not None
        assert ("secret/a", b"live") in await again.heard()
    finally:
        files.change_password("carol", CAROL.password or b"")


async def test_who_was_removed_is_unknown_on_a_connection_where_it_was_not(scene: Scene) -> None:
    carol = await enter(scene, "carol")
    own_carol = OwnVisitor(carol.channel, authorization_of(CAROL), "", cycle(("x",)))
    assert await carol.subscribe("secret/#") and await own_carol.subscribe("secret/#")
    await scene.watch()
    await own_carol.heard()
    await scene.guarded.reload(locked_out="carol")
    await scene.tell_everything()
    assert await ask_for_peers(carol.channel, authorization_of(CAROL)) is Status.UNAUTHENTICATED
    assert await carol.heard() == await own_carol.heard() == []
    assert carol.endings == [Status.UNAUTHENTICATED]


@pytest.mark.parametrize("change", ["removed", "given another password"])
async def test_call_that_publishes_ends_when_its_caller_is(scene: Scene, change: str) -> None:
    channel, files = await open_channel(scene), scene.guarded.files
    call = channel.call(f"{OWN}Publish", authorization_of(CAROL), is_last=False)
    entry = own.Messages(topic="open/a", payloads=[b"said"])
    batch = own.PublishBatch(batch_id=1, messages=[entry]).SerializeToString()
    call.send(batch)
    assert own.PublishAck.FromString(await call.take() or b"").accepted == 1
    assert await scene.forged() == [("open/a", b"said")]
    if change == "removed":
        await scene.guarded.reload(locked_out="carol")  # there are still rules for her
    else:
        files.change_password("carol", b"another")
        await scene.guarded.reload()
        files.change_password("carol", CAROL.password or b"")
    call.send(batch)
    assert await call.take() is None
    assert await call.ending() is Status.UNAUTHENTICATED
    assert await scene.forged() == []


# Rights that were taken away


async def test_stream_ends_with_the_right_to_read_all_of_it(scene: Scene) -> None:
    carol = await enter(scene, "carol")
    info = await carol.follow("Subscribe", nexusd.SubscribeRequest(topics=["open/+", "secret/#"]))
    assert info is not None
    await scene.guarded.change({"carol": NO_SECRETS})
    await scene.tell_everything()
    assert await carol.heard() == []
    assert carol.endings == [Status.PERMISSION_DENIED]
    assert await carol.resume(info.subscription_id) is None
    assert carol.endings[-1] is Status.PERMISSION_DENIED
    await scene.guarded.change({"carol": RIGHTS["carol"]})
    assert await carol.resume(info.subscription_id) is not None, "nothing but the right was missing"
    assert ("secret/a", b"live") in await carol.heard()


@pytest.mark.parametrize("mode", MODES, ids=nexusd.GapRecoveryMode.Name)
@pytest.mark.parametrize("ends", ["paused", "cancelled", "cut"])
async def test_what_was_paused_is_not_resumed_without_the_right(scene: Scene, mode: Any, ends: str) -> None:
    carol = await enter(scene, "carol")
    info = await carol.follow("Subscribe", nexusd.SubscribeRequest(topics=["secret/#"]))
    assert info is not None
    if ends == "paused":
        pause = nexusd.UnsubscribeRequest(subscription_id=info.subscription_id, pause=True)
        assert (await carol.ask(f"{SIDECAR}Unsubscribe", pause))[0] is Status.OK
    elif ends == "cancelled":
        carol.stop()
    else:
        await carol.vanish()
    await scene.tell_everything()
    await scene.guarded.change({"carol": NO_SECRETS})
    again = await enter(scene, "carol")
    request = nexusd.ResumeSubscribeRequest(
        subscription_id=info.subscription_id,
        gap_recovery_mode=mode,
        receive_retained=True,
        last_sequence_per_topic={"secret/a": 1},
    )
    assert await again.follow("ResumeSubscribe", request) is None
    assert again.endings == [Status.PERMISSION_DENIED]
    await scene.tell_everything()
    assert await again.heard() == []


async def test_cursor_does_not_give_back_a_right(scene: Scene) -> None:
    carol = await enter_own(scene, "carol")
    assert await carol.subscribe("secret/#")
    await scene.tell_everything()
    assert ("secret/a", b"live") in await carol.heard()
    cursor = carol.cursor
    assert cursor
    await scene.tell_everything()
    await scene.guarded.change({"carol": NO_SECRETS})
    await carol.heard()
    assert carol.withdrawn == ["secret/#"]
    for filter in ("secret/#", "secret/a", "#"):
        assert not await carol.add(own.Add(filters=[filter], after=cursor))
        assert not await carol.add(own.Add(filters=["open/+", filter], last=100))
    assert await carol.add(own.Add(filters=["open/+"], after=cursor))
    heard = await carol.heard()
    assert ("open/a", b"live") in heard
    assert all(topic.startswith("open/") for topic, _ in heard)


async def test_entries_of_a_batch_that_are_forbidden_are_refused_and_the_others_are_not(scene: Scene) -> None:
    mallory = await enter_own(scene, "mallory")
    topics = ["open/a", "secret", "open/b", "secret/a", "$SYS/x", "own/owner/o"]
    entries = [own.Messages(topic=topic, payloads=[b"forged"], message_ids=[topic]) for topic in topics]
    entries += [own.Messages(topic=topic, payloads=[b"forged"]) for topic in topics]
    status, answer = await mallory.ask(f"{OWN}Publish", own.PublishBatch(messages=entries))
    ack = own.PublishAck.FromString(answer)
    assert status is Status.OK
    assert [placed.index for placed in ack.placed] == [0, 2, 6, 8]
    assert {refusal.code for refusal in ack.refusals} <= {NOT_AUTHORIZED, "invalid-topic"}
    assert {topic for topic, _ in await scene.forged()} == {"open/a", "open/b"}


async def test_right_to_publish_is_looked_at_for_every_batch_of_a_call(scene: Scene) -> None:
    channel = await open_channel(scene)
    call = channel.call(f"{OWN}Publish", authorization_of(CAROL), is_last=False)
    entries = [own.Messages(topic=topic, payloads=[b"said"]) for topic in ("open/a", "secret/a")]
    batch = own.PublishBatch(messages=entries).SerializeToString()
    accepted = []
    for rights in (RIGHTS["carol"], NO_SECRETS, Rights(), RIGHTS["carol"]):
        await scene.guarded.change({"carol": rights})
        call.send(batch)
        accepted.append(own.PublishAck.FromString(await call.take() or b"").accepted)
    assert accepted == [2, 1, 0, 2]


# Subscriptions of others


@pytest.mark.parametrize("is_paused", [False, True], ids=["live", "paused"])
async def test_subscription_of_somebody_else_is_as_unknown_as_one_that_is_not_there(
    scene: Scene, *, is_paused: bool
) -> None:
    carol, mallory = await enter(scene, "carol"), await enter(scene, "mallory")
    info = await carol.follow("Subscribe", nexusd.SubscribeRequest(topics=["open/+"]))
    assert info is not None
    if is_paused:
        await carol.vanish()
        carol = await enter(scene, "carol")
    id = info.subscription_id
    for method, kind in (
        ("ResumeSubscribe", nexusd.ResumeSubscribeRequest),
        ("Unsubscribe", nexusd.UnsubscribeRequest),
    ):
        answers = [
            (call.text, await call.take(), await call.ending(), call.text)
            for request in (kind(subscription_id=id), kind(subscription_id=id[:-1] + "x"))
            for call in [
                mallory.channel.call(SIDECAR + method, authorization_of(MALLORY), request.SerializeToString())
            ]
        ]
        assert answers[0] == answers[1]
    if is_paused:
        assert await carol.resume(id) is not None
    await scene.tell_everything()
    assert ("open/a", b"live") in await carol.heard(), "nothing happened to it"


async def test_nobody_learns_why_somebody_else_got_something(scene: Scene) -> None:
    victim = await enter_own(scene, "carol")
    assert await victim.subscribe("secret/#") and await victim.subscribe("open/+")
    await scene.tell_everything()
    await victim.heard()
    mallory, owner = await enter_own(scene, "mallory"), await enter_own(scene, "owner")
    assert await mallory.subscribe("open/+")

    async def ask(who: OwnVisitor, topic: str, client_id: str) -> Status:
        status, _ = await who.ask(f"{OWN}Why", own.WhyRequest(topic=topic, sequence=1, client_id=client_id))
        return status

    for topic in ("open/a", "secret/a"):
        assert await ask(mallory, topic, victim.session_id) is Status.PERMISSION_DENIED
        assert await ask(mallory, topic, "") is Status.PERMISSION_DENIED
        assert await ask(mallory, topic, "nobody") is Status.PERMISSION_DENIED
        assert await ask(owner, topic, victim.session_id) is Status.OK
    assert await ask(mallory, "open/a", mallory.session_id) is Status.OK
    assert await ask(mallory, "secret/a", mallory.session_id) is Status.PERMISSION_DENIED


# Certificates


async def channel_with(scene: Scene, context: ssl.SSLContext) -> Channel:
    context.set_alpn_protocols(["h2"])
    return await Channel.open(scene.guarded.server.port_of("grpcs"), context)


async def test_certificate_counts_and_not_what_the_metadata_says(
    scene: Scene, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> None:
    certificate = authority.issue(tmp_path_factory.mktemp("client"), "client", common_name="mallory")
    channel = await channel_with(scene, authority.client_context(certificate))
    for metadata in ([], authorization_of(OWNER), authorization_of(MALLORY), words_of(OWNER)):
        mallory = SidecarVisitor(channel, metadata, "", cycle(("x",)))
        assert await mallory.publish("open/a", b"said")
        assert not await mallory.publish("secret", b"forged")
        assert ("secret", b"") not in await mallory.pry()
    assert {topic for topic, _ in await scene.forged()} == {"open/a"}
    channel.close()


async def test_who_has_no_certificate_needs_a_password(scene: Scene, authority: Authority) -> None:
    channel = await channel_with(scene, authority.client_context())
    assert await ask_for_peers(channel, []) is Status.UNAUTHENTICATED
    assert await ask_for_peers(channel, authorization_of(OWNER)) is Status.OK
    channel.close()


async def test_certificate_of_another_authority_names_nobody(
    scene: Scene, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> None:
    forged = Authority().issue(tmp_path_factory.mktemp("forger"), "forger", common_name="owner")
    context = authority.client_context(forged)
    try:
        channel = await channel_with(scene, context)
    except (ssl.SSLError, ConnectionError):
        return  # that is how some of them learn it
    assert await ask_for_peers(channel, []) is not Status.OK
    channel.close()
