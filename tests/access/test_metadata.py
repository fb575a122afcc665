"""Who makes a call stands in its metadata: nobody comes in by what is wrong there, or contradicts itself."""

from base64 import b64encode
from itertools import cycle

import pytest

from penstock.wire.grpc import Status
from tests.access.callers import MALLORY, OWNER, ask_for_peers, open_channel
from tests.access.calls import OWN, SIDECAR, SidecarVisitor, authorization_of, words_of
from tests.access.channels import Metadata
from tests.access.entrances import Credentials
from tests.access.scene import Scene

with_guests = pytest.mark.parametrize("scene", [True], indirect=True, ids=["where guests may come"])

((_, TOKEN),) = authorization_of(OWNER)
(_, MALLORYS) = authorization_of(MALLORY)[0]
USERNAME, PASSWORD = words_of(OWNER)
BAD_METADATA: dict[str, Metadata] = {
    "two who are the same": [(b"authorization", TOKEN), *words_of(OWNER)],
    "two who are not": [(b"authorization", MALLORYS), *words_of(OWNER)],
    "a token and a name": [(b"authorization", MALLORYS), USERNAME],
    "a token and a password": [(b"authorization", TOKEN), PASSWORD],
    "a token twice": [(b"authorization", TOKEN)] * 2,
    "two tokens": [(b"authorization", MALLORYS), (b"authorization", TOKEN)],
    "two tokens in one": [(b"authorization", MALLORYS + b", " + TOKEN)],
    "two names": [(b"username", b"mallory"), USERNAME, PASSWORD],
    "two passwords": [USERNAME, (b"password", b"guess"), PASSWORD],
    "a name alone": [USERNAME],
    "a password alone": [PASSWORD],
    "no token": [(b"authorization", b"")],
    "no word": [(b"username", b""), (b"password", b"")],
    "a token of another kind": [(b"authorization", TOKEN.replace(b"Basic", b"Digest"))],
    "a token of no kind": [(b"authorization", TOKEN.removeprefix(b"Basic "))],
    "a token that claims to be none": [(b"authorization", b"none")],
    "half a token": [(b"authorization", TOKEN[:-5])],
    "a token without a colon": [(b"authorization", b"Basic " + b64encode(b"owner"))],
    "a name between blanks": [(b"username", b" owner "), PASSWORD],
    "a name with a null": [(b"username", b"owner\0"), PASSWORD],
    "two lines for a name": [(b"username", b"mallory\nowner"), PASSWORD],
    "a name that is not text": [(b"username", b"owner\xff"), PASSWORD],
    "a name of 20,000 bytes": [(b"username", b"owner" * 4_000), PASSWORD],
    "capitals": [(b"Username", b"owner"), (b"Password", PASSWORD[1])],
}
NO_METADATA: dict[str, Metadata] = {
    "nothing": [],
    "a binary token": [(b"authorization-bin", b64encode(TOKEN))],
    "binary words": [(b"username-bin", b64encode(b"owner")), (b"password-bin", b64encode(PASSWORD[1]))],
    "a token for somebody between": [(b"proxy-authorization", TOKEN)],
    "a cookie": [(b"cookie", b"authorization=" + TOKEN)],
    "names of other kinds": [(b"user", b"owner"), (b"x-username", b"owner"), (b"x-forwarded-user", b"owner")],
}
"""Nothing of this says who makes the call."""


@pytest.mark.parametrize("name", [*BAD_METADATA, *NO_METADATA])
async def test_metadata_that_names_nobody_for_certain_lets_nobody_in(scene: Scene, name: str) -> None:
    channel = await open_channel(scene)
    assert await ask_for_peers(channel, {**BAD_METADATA, **NO_METADATA}[name]) is not Status.OK
    again = await open_channel(scene)
    assert await ask_for_peers(again, [(b"authorization", TOKEN)]) is Status.OK


@with_guests
@pytest.mark.parametrize("name", BAD_METADATA)
async def test_who_gives_a_bad_name_is_no_guest_either(scene: Scene, name: str) -> None:
    assert await ask_for_peers(await open_channel(scene), BAD_METADATA[name]) is not Status.OK


@with_guests
@pytest.mark.parametrize("name", NO_METADATA)
async def test_who_gives_no_name_is_a_guest_and_no_more(scene: Scene, name: str) -> None:
    guest = SidecarVisitor(await open_channel(scene), NO_METADATA[name], "", cycle(("secret",)))
    assert await guest.subscribe("public/+")
    assert not await guest.subscribe("secret")
    assert not await guest.publish("secret", b"forged")
    assert all(topic.startswith("public/") for topic, _ in await guest.pry())
    await scene.tell_everything()
    assert ("public/a", b"live") in await guest.heard()
    assert await scene.forged() == []


PATHS = {
    SIDECAR: ("Publish", "Subscribe", "ResumeSubscribe", "Unsubscribe", "GetTopics", "GetPeers"),
    OWN: ("Publish", "Subscribe", "Why"),
}


@pytest.mark.parametrize("path", [service + method for service in PATHS for method in PATHS[service]])
async def test_every_method_asks_who_calls(scene: Scene, path: str) -> None:
    channel = await open_channel(scene)
    for metadata in ([], authorization_of(Credentials("owner", b"guess"))):
        status, answer = await channel.ask(path, metadata, b"")
        assert (status, answer) == (Status.UNAUTHENTICATED, b"")


@pytest.mark.parametrize(
    "path",
    [
        f"/grpc.health.{SIDECAR}GetTopics",
        f"/grpc.health.v1.Health/..{SIDECAR}GetTopics",
        f"/grpc.health.v1.Health/../..{SIDECAR}GetTopics",
        f"/grpc.reflection.v1.ServerReflection{SIDECAR}GetTopics",
        f"/{SIDECAR}GetTopics",
        f"{SIDECAR}GetTopics/",
        f"{SIDECAR.lower()}gettopics",
        f"{SIDECAR}GetTopics?x=/grpc.health.",
        f"{SIDECAR}%47etTopics",
    ],
)
async def test_no_other_path_leads_to_a_method(scene: Scene, path: str) -> None:
    status, answer = await (await open_channel(scene)).ask(path, [], b"")
    assert status is not Status.OK
    assert answer == b""


async def test_health_needs_no_name(scene: Scene) -> None:
    status, answer = await (await open_channel(scene)).ask("/grpc.health.v1.Health/Check", [], b"")
    assert (status, answer) == (Status.OK, b"\x08\x01")
