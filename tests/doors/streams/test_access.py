"""Who may send and receive: the rights of the topic, as at every door, and at every moment of a wait."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from argon2 import PasswordHasher

from penstock.app import Server
from penstock.core.settings import AccessSettings
from tests.doors.serving import EVERYTHING, Start, client_of
from tests.doors.streams.people import Person, reader_waits, receivers_wait, senders_wait

QUICK = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
RULES = """
user alice
both jobs/#
user bob
subscribe jobs/+
user carol
publish jobs/#
"""


class Guarded:
    """A server with users, and each of them at it."""

    def __init__(self, server: Server, rules: Path) -> None:
        self.server = server
        self._rules = rules
        self._clients: list[httpx.AsyncClient] = []

    def person(self, user: str | None, password: str = "") -> Person:
        headers = {}
        if user is not None:
            pair = f"{user}:{password or user}".encode()
            headers["Authorization"] = f"Basic {b64encode(pair).decode()}"
        self._clients.append(client_of(self.server, headers=headers))
        return Person(self._clients[-1])

    def change_rules(self, rules: str) -> None:
        self._rules.write_text(rules)
        self.server.reload()

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


@pytest.fixture
async def guarded(start: Start, tmp_path: Path) -> AsyncIterator[Guarded]:
    passwords, rules = tmp_path / "passwords", tmp_path / "acl"
    passwords.write_text("".join(f"{user}:{QUICK.hash(user)}\n" for user in ("alice", "bob", "carol")))
    rules.write_text(RULES)
    access = AccessSettings(password_file=str(passwords), acl_file=str(rules))
    guarded = Guarded(await start(access=access, data_dir=str(tmp_path / "data"), log=EVERYTHING), rules)
    yield guarded
    await guarded.close()


def is_forbidden(answer: httpx.Response) -> bool:
    return answer.status_code == 403 and list(answer.json()) == ["error"]


def is_unknown(answer: httpx.Response) -> bool:
    has_challenge = answer.headers.get("www-authenticate", "").startswith("Basic")
    return answer.status_code == 401 and list(answer.json()) == ["error"] and has_challenge


async def test_strangers_neither_send_nor_receive(guarded: Guarded) -> None:
    for user, password in ((None, ""), ("alice", "wrong"), ("mallory", "mallory")):
        stranger = guarded.person(user, password)
        assert is_unknown(await stranger.send("jobs/a", 1)), user
        assert is_unknown(await stranger.send("jobs/a", 1, writeToDB=True)), user
        assert is_unknown(await stranger.receive("jobs/a", 0)), user
        assert is_unknown(await stranger.receive("jobs/a", 0, readFromDB="true")), user
        assert (await stranger.http.get("/api/v1/streams/health")).status_code == 200
    assert len(guarded.server.broker.streams) == 0


async def test_whoever_may_subscribe_receives_and_does_not_send(guarded: Guarded) -> None:
    alice, bob = guarded.person("alice"), guarded.person("bob")
    await alice.send_all("jobs/a", 1)
    assert is_forbidden(await bob.send("jobs/a", 2))
    assert is_forbidden(await bob.send("jobs/a", 2, writeToDB=True))
    assert is_forbidden(await bob.send("jobs/a", 2, inMemoryStreamSize=0, blockingSendTimeoutSeconds=1))
    assert await bob.take("jobs/a") == 1
    assert await bob.finds_nothing("jobs/a")
    assert (await bob.receive("jobs/a", readFromDB="true", limit=10)).json()["messages"][-1]["message"] == 1


async def test_whoever_may_publish_sends_and_does_not_receive(guarded: Guarded) -> None:
    alice, carol = guarded.person("alice"), guarded.person("carol")
    await carol.send_all("jobs/a", 1)
    assert is_forbidden(await carol.receive("jobs/a"))
    assert is_forbidden(await carol.receive("jobs/a", readFromDB="true"))
    assert await alice.take("jobs/a", 0) == 1


async def test_no_spelling_gets_around_a_rule(guarded: Guarded) -> None:
    bob = guarded.person("bob")
    for stream in ("secret", "jobs", "jobs/a/b", "JOBS/a", "/jobs/a", "$SYS/uptime", "$penstock/drops"):
        assert is_forbidden(await bob.receive(stream, 0)), stream
        assert is_forbidden(await bob.receive(stream, 0, readFromDB="true")), stream
        assert is_forbidden(await bob.send(stream, 1)), stream
    assert guarded.server.broker.topics.get("secret") is None


async def test_a_filter_is_no_stream(guarded: Guarded) -> None:
    bob = guarded.person("bob")
    filters = {"#": 400, "jobs/+": 400, "jobs/#": 400, "$share/g/jobs/a": 403, "$stream/jobs/a": 403}
    for stream, status in filters.items():
        for answer in (await bob.receive(stream, 0), await bob.receive(stream, 0, readFromDB="true")):
            assert answer.status_code == status, stream
            assert list(answer.json()) == ["error"], stream


async def test_a_receiver_whose_right_is_taken_away_gets_nothing_more(guarded: Guarded) -> None:
    alice, bob = guarded.person("alice"), guarded.person("bob")
    receiving = asyncio.create_task(bob.receive("jobs/a"))
    await receivers_wait(guarded.server, 1)
    guarded.change_rules("user alice\nboth jobs/#\n")
    await alice.send_all("jobs/a", "secret now")
    assert is_forbidden(await receiving)
    assert await alice.take("jobs/a", 0) == "secret now"


async def test_a_sender_whose_right_is_taken_away_publishes_nothing_more(guarded: Guarded) -> None:
    alice, carol = guarded.person("alice"), guarded.person("carol")
    sending = asyncio.create_task(
        carol.send("jobs/a", 1, inMemoryStreamSize=0, blockingSendTimeoutSeconds=20)
    )
    await senders_wait(guarded.server, 1)
    guarded.change_rules("user alice\nboth jobs/#\n")
    assert is_forbidden(await sending)
    assert await alice.finds_nothing("jobs/a")


async def test_a_reader_of_the_log_whose_right_is_taken_away_gets_nothing_more(guarded: Guarded) -> None:
    alice, bob = guarded.person("alice"), guarded.person("bob")
    reading = asyncio.create_task(bob.receive("jobs/a", readFromDB="true"))
    await reader_waits(guarded.server, "jobs/a")
    guarded.change_rules("user alice\nboth jobs/#\n")
    await alice.send_all("jobs/a", "secret now", writeToDB=True)
    assert is_forbidden(await reading)


async def test_an_id_is_one_s_own(guarded: Guarded) -> None:
    """Somebody else's message with the same id is another message."""
    alice, carol = guarded.person("alice"), guarded.person("carol")
    message_id = "123e4567-e89b-12d3-a456-426614174000"
    await alice.send_all("jobs/a", "alice's", messageUuid=message_id, writeToDB=True)
    await carol.send_all("jobs/a", "carol's", messageUuid=message_id, writeToDB=True)
    page = (await alice.receive("jobs/a", readFromDB="true", limit=10)).json()
    assert [each["message"] for each in page["messages"]] == ["alice's", "carol's"]


async def test_what_is_refused_is_counted(guarded: Guarded) -> None:
    bob, counters = guarded.person("bob"), guarded.server.broker.counters
    assert is_forbidden(await bob.send("jobs/a", 1))
    assert (counters.publishes_refused, counters.actions_forbidden) == (1, 1)
    assert is_forbidden(await bob.receive("secret", 0))
    assert is_forbidden(await bob.receive("secret", 0, readFromDB="true"))
    assert (counters.publishes_refused, counters.actions_forbidden) == (1, 3)
    assert await bob.finds_nothing("jobs/a")
    assert (counters.publishes_refused, counters.actions_forbidden) == (1, 3)
