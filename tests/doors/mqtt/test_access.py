"""Passwords and rights as they are met at the wire: who comes in, what they may do, and nobody waits."""

import asyncio
import time
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from penstock.wire.mqtt import (
    ConnAck,
    Connect,
    Disconnect,
    PubAck,
    Publish,
    ReasonCode,
    ReturnCode,
    SubAck,
    Subscribe,
    Version,
    Will,
)
from penstock.wire.mqtt.packets import Request
from tests.doors.mqtt.peers import Peers, both_versions, payloads
from tests.support.servers import RunningServer, StartServer

QUICK = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
SLOW = PasswordHasher(time_cost=20, memory_cost=64 * 1024, parallelism=1)
"""More than half a second of work."""

ACL = """
user alice
both      {name}/alice/#
publish   {name}/inbox/+
subscribe {name}/news/+

user *
both      {name}/own/%u/%c

anonymous
subscribe {name}/public/#
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a password file of alice and bob."""
    folder = tmp_path_factory.mktemp("access")
    lines = [f"{user}:{QUICK.hash(user + '!')}" for user in ("alice", "bob")]
    (folder / "passwords").write_text("\n".join(lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def strict(start_server: StartServer, folder: Path) -> RunningServer:
    """Only who has a password comes in; there are no further rules."""
    return start_server({"access": {"password_file": str(folder / "passwords")}})


@pytest.fixture(scope="module")
def slow_server(start_server: StartServer, folder: Path) -> RunningServer:
    """Passwords that take long to check, and guests."""
    stored = SLOW.hash("slow!")
    file = folder / "slow-passwords"
    file.write_text("\n".join(f"slow-{number}:{stored}" for number in range(2)), encoding="utf-8")
    access = {"password_file": str(file), "allow_anonymous": True}
    return start_server({"access": access})


@pytest.fixture(scope="module")
def ruled(start_server: StartServer, folder: Path) -> RunningServer:
    """Passwords, rules, and guests."""
    acl = folder / "acl"
    acl.write_text(ACL.format(name="t"), encoding="utf-8")
    access = {"password_file": str(folder / "passwords"), "acl_file": str(acl), "allow_anonymous": True}
    return start_server({"access": access})


# Coming in


@both_versions
async def test_right_password_lets_in(strict: RunningServer, peers: Peers, version: Version) -> None:
    peer = await peers.connect("", version, user="alice", password=b"alice!", port=strict.port)
    await peer.subscribe("anything")
    assert await peer.fence() == []


@both_versions
@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("alice", b"bob!"),
        ("alice", b"alice"),
        ("alice", b""),
        ("alice", None),
        ("Alice", b"alice!"),
        ("mallory", b"alice!"),
        ("", b"alice!"),
        ("", b""),
        ("*", b"alice!"),
        ("alice:", b"alice!"),
        (None, None),
    ],
)
async def test_anything_else_is_refused(
    strict: RunningServer, peers: Peers, version: Version, user: str | None, password: bytes | None
) -> None:
    is_new = version is Version.V5
    code: int = ReasonCode.BAD_USER_NAME_OR_PASSWORD if is_new else ReturnCode.BAD_USER_NAME_OR_PASSWORD
    packet = Connect("", version, user_name=user, password=password)
    assert await peers.refused(packet, strict.port) == [ConnAck(False, code)]


async def test_password_alone_is_nobody(strict: RunningServer, peers: Peers) -> None:
    packet = Connect("", Version.V5, password=b"alice!")
    refusal = ConnAck(False, ReasonCode.BAD_USER_NAME_OR_PASSWORD)
    assert await peers.refused(packet, strict.port) == [refusal]


async def test_the_log_names_who_was_refused_and_leaves_out_what_is_empty(
    strict: RunningServer, ruled: RunningServer, peers: Peers, name: str
) -> None:
    await peers.refused(Connect(name, Version.V5, user_name="mallory", password=b"?"), strict.port)
    await peers.refused(Connect("", Version.V5, user_name=name, password=b"?"), strict.port)
    named, nameless = [line for line in strict.logged.splitlines() if name in line]
    assert named.endswith(f" client={name} user=mallory")
    assert "client" not in nameless
    assert nameless.endswith(f" user={name}")
    alice = await peers.connect(name, user="alice", password=b"alice!", port=ruled.port)
    await alice.publish("t/news/1", b"x", 1)
    (line,) = [line for line in ruled.logged.splitlines() if name in line]
    assert line.endswith(
        f" client={name} user=alice topic=t/news/1 detail='not allowed to publish to t/news/1'"
    )


@both_versions
async def test_refused_client_takes_nobodys_session(
    strict: RunningServer, peers: Peers, name: str, version: Version
) -> None:
    owner = await peers.connect(name, version, user="alice", password=b"alice!", port=strict.port)
    await peers.refused(Connect(name, version, user_name="bob", password=b"wrong"), strict.port)
    assert await owner.fence() == []


async def test_second_connect_as_another_user_is_a_protocol_error(
    strict: RunningServer, peers: Peers
) -> None:
    peer = await peers.connect(user="alice", password=b"alice!", port=strict.port)
    await peer.send(Connect("", Version.V5, user_name="bob", password=b"bob!"))
    assert await peer.last_words() == [Disconnect(ReasonCode.PROTOCOL_ERROR)]


@both_versions
async def test_guest_comes_in_where_guests_may_but_a_wrong_name_is_no_guest(
    ruled: RunningServer, peers: Peers, version: Version
) -> None:
    await peers.connect("", version, port=ruled.port)
    words = await peers.refused(Connect("", version, user_name="alice", password=b"wrong"), ruled.port)
    assert [type(word) for word in words] == [ConnAck]


async def test_without_files_any_name_will_do(peers: Peers) -> None:
    await peers.connect(user="whoever", password=b"whatever")


# Rights


@pytest.mark.parametrize("qos", [1, 2])
async def test_publishing_beyond_ones_rights_is_refused_with_its_reason(
    ruled: RunningServer, peers: Peers, qos: int
) -> None:
    alice = await peers.connect("a", user="alice", password=b"alice!", port=ruled.port)
    for topic in ("t/alice/x", "t/alice", "t/inbox/bob", "t/own/alice/a"):
        assert await alice.publish(topic, b"x", qos) < 0x80, topic
    for topic in (
        "t/news/1",
        "t/inbox",
        "t/inbox/bob/x",
        "t/own/bob/a",
        "t/own/alice/b",
        "T/alice/x",
        "t//alice",
    ):
        assert await alice.publish(topic, b"x", qos) == ReasonCode.NOT_AUTHORIZED, topic


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_311_message_beyond_ones_rights_is_acknowledged_and_reaches_nobody(
    ruled: RunningServer, peers: Peers, qos: int
) -> None:
    alice = await peers.connect("", user="alice", password=b"alice!", port=ruled.port)
    await alice.subscribe("t/alice/#", qos=1)
    bob = await peers.connect("", Version.V311, user="bob", password=b"bob!", port=ruled.port)
    assert await bob.publish("t/alice/x", b"from bob", qos) == 0
    assert await bob.fence() == []
    assert await alice.fence() == []


@both_versions
async def test_subscribing_beyond_ones_rights_is_refused(
    ruled: RunningServer, peers: Peers, version: Version
) -> None:
    alice = await peers.connect("a", version, user="alice", password=b"alice!", port=ruled.port)
    no = ReasonCode.NOT_AUTHORIZED if version is Version.V5 else 0x80
    asked = {
        "t/alice/#": 0,
        "t/alice/x/+": 0,
        "t/news/+": 0,
        "t/news/1": 0,
        "$share/g/t/news/+": 0,
        "t/own/alice/a": 0,
        "#": no,
        "+/alice/#": no,
        "t/+/x": no,
        "t/news/#": no,
        "t/inbox/bob": no,
        "t/own/+/a": no,
        "t/public/x": no,  # what guests may is not what users may
        "$share/g/t/inbox/bob": no,
        "$SYS/#": no,
        "$penstock/drops": no,
    }
    assert dict(zip(asked, await alice.subscribe(*asked), strict=True)) == asked


async def test_guests_have_their_own_rights(ruled: RunningServer, peers: Peers) -> None:
    guest = await peers.connect(port=ruled.port)
    no = ReasonCode.NOT_AUTHORIZED
    assert await guest.subscribe("t/public/#", "t/alice/#", "t/own/%u/%c") == (0, no, no)
    assert await guest.publish("t/public/x", b"") == no


@both_versions
async def test_will_beyond_ones_rights_is_refused(
    ruled: RunningServer, peers: Peers, version: Version
) -> None:
    code: int = ReasonCode.NOT_AUTHORIZED if version is Version.V5 else ReturnCode.NOT_AUTHORIZED
    bob = {"user_name": "bob", "password": b"bob!"}
    packet = Connect("b", version, will=Will("t/alice/x", b""), **bob)  # type: ignore[arg-type]
    assert await peers.refused(packet, ruled.port) == [ConnAck(False, code)]
    await peers.connect(
        "b", version, user="bob", password=b"bob!", will=Will("t/own/bob/b", b""), port=ruled.port
    )


async def test_refused_publishes_do_not_fill_the_log(ruled: RunningServer, peers: Peers) -> None:
    guest = await peers.connect("noisy", port=ruled.port)
    for number in range(2_000):
        guest.stream.write(Publish(f"forbidden/{number % 10}", b""))
    await guest.fence()
    lines = [line for line in ruled.logged.splitlines() if "client=noisy" in line]
    assert 0 < len(lines) <= 20


# Nobody waits


async def test_others_are_served_while_a_password_is_checked(
    slow_server: RunningServer, peers: Peers
) -> None:
    port = slow_server.port
    other, slow = await peers.connect(port=port), await peers.open(port=port)
    await slow.send(
        Connect("slow", Version.V5, user_name="slow-0", password=b"slow!"),
        Subscribe(1, (Request("slow"),)),
        Publish("slow", b"early", 1, packet_id=1),
    )
    answered = asyncio.create_task(slow.take())
    served = 0
    while not answered.done():
        assert await other.fence() == []
        served += not answered.done()
    assert isinstance(await answered, ConnAck)
    assert served > 5  # it did take its time, which would else be that of one
    assert await slow.receive(SubAck) == SubAck(1, (0,))  # what it said meanwhile was not lost
    got = [await slow.take() for _ in range(2)]
    assert payloads([packet for packet in got if not isinstance(packet, PubAck)]) == [b"early"]


async def test_verified_password_is_remembered(slow_server: RunningServer, peers: Peers) -> None:
    times = []
    for _ in range(6):
        began = time.monotonic()
        await peers.connect(user="slow-1", password=b"slow!", port=slow_server.port)
        times.append(time.monotonic() - began)
    assert times[0] > 4 * min(times[1:])
