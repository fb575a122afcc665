"""Whatever is wrong with a request, it is told in a key that says so, and nothing comes of it."""

import random
from typing import Any
from uuid import uuid4

import httpx
import pytest

from penstock.app import Server
from penstock.core.settings import StreamSettings
from tests.doors.serving import Start, client_of
from tests.doors.streams.people import RECEIVE, SEND, Person

INVALID = "invalid request schema"
GOOD_ID = "123e4567-e89b-12d3-a456-426614174000"
INT32 = 2**31

NO_SENDS = (
    b"",
    b"{",
    b"null",
    b"[]",
    b"1",
    b'"x"',
    b"\xff\xfe",
    b'{"streamId": "a", "messageUuid": "%b", "message": 1} x' % GOOD_ID.encode(),
    b'{"streamId": "\\ud800", "messageUuid": "%b", "message": 1}' % GOOD_ID.encode(),
    b'{"streamId": "a", "messageUuid": "%b", "message": nope}' % GOOD_ID.encode(),
    b'{"streamId": "a", "messageUuid": "%b", "message": ' % GOOD_ID.encode() + b"[" * 100_000,
)
OF_ANOTHER_FORM: tuple[dict[str, Any], ...] = (
    {"streamId": ...},
    {"messageUuid": ...},
    {"message": ...},
    {"another": 1},
    {"streamid": "a"},
    {"streamId": 1},
    {"streamId": None},
    {"messageUuid": None},
    {"inMemoryStreamSize": "3"},
    {"inMemoryStreamSize": 1.5},
    {"inMemoryStreamSize": INT32},
    {"blockingSendTimeoutSeconds": True},
    {"blockingSendTimeoutSeconds": INT32},
    {"writeToDB": "true"},
    {"dbTTLSeconds": INT32, "writeToDB": True},
)
IMPOSSIBLE: tuple[dict[str, Any], ...] = (
    {"messageUuid": "msg-123"},
    {"messageUuid": ""},
    {"messageUuid": GOOD_ID + "0"},
    {"messageUuid": GOOD_ID[:-1] + "g"},
    {"messageUuid": GOOD_ID.replace("1", "\u0661")},
    {"messageUuid": "{" + GOOD_ID},
    {"inMemoryStreamSize": -1},
    {"inMemoryStreamSize": -INT32},
    {"inMemoryStreamSize": 0},
    {"inMemoryStreamSize": 0, "blockingSendTimeoutSeconds": -1},
    {"inMemoryStreamSize": 100_001},
    {"dbTTLSeconds": 0, "writeToDB": True},
    {"dbTTLSeconds": -1},
    {"streamId": ""},
    {"streamId": "a/+"},
    {"streamId": "#"},
    {"streamId": "x" * 70_000},
    {"streamId": "a\0"},
    {"message": {"$bytes": "no base64"}},
    {"message": {"$bytes": 5}},
    {"writeToDB": True},
)
BAD_QUERIES: tuple[tuple[str, str | None], ...] = (
    ("", "streamId is required"),
    ("streamId=", "streamId is required"),
    ("timeoutSeconds=1", "streamId is required"),
    ("streamId=a&timeoutSeconds=x", "invalid timeoutSeconds"),
    ("streamId=a&timeoutSeconds=", "invalid timeoutSeconds"),
    ("streamId=a&timeoutSeconds=1.5", "invalid timeoutSeconds"),
    ("streamId=a&timeoutSeconds=%D9%A1", "invalid timeoutSeconds"),
    ("streamId=a&timeoutSeconds=" + "9" * 5_000, "invalid timeoutSeconds"),
    ("streamId=a&timeoutSeconds=1&timeout=1s", None),
    ("streamId=a&timeout=5", None),
    ("streamId=a&timeout=", None),
    ("streamId=a&readFromDB=maybe", "invalid readFromDB"),
    ("streamId=a&readFromDB=true", None),
    ("streamId=a&dbResumeToken=x", None),
    ("streamId=a&limit=5", None),
    ("streamId=a&readFromDB=true&limit=0", None),
    ("streamId=a&readFromDB=true&limit=1001", None),
    ("streamId=a&readFromDB=true&limit=-1", None),
    ("streamId=a&streamId=b", None),
    ("streamId=a&another=1", None),
    ("streamId=a&timeoutSecond=1", None),
    ("streamId=%ff", None),
    ("streamId=a/%2B", None),
    ("streamId=%00", None),
)
"""Queries, and the text that tells what is wrong with them where callers know it."""
REFUSED_PATHS = (
    ("GET", "/api/v1/streams", 404),
    ("GET", "/api/v1/streams/other", 404),
    ("GET", "/streams/x/y", 404),
    ("GET", "/api/v1/streams/send", 405),
    ("DELETE", "/streams/send", 405),
    ("POST", "/api/v1/streams/receive", 405),
    ("POST", "/api/v1/streams/health", 405),
)


def body(**changed: Any) -> dict[str, Any]:
    """A send that is right but for what is changed; an ellipsis takes a key away."""
    whole = {"streamId": "a", "messageUuid": GOOD_ID, "message": 1, **changed}
    return {key: value for key, value in whole.items() if value is not ...}


def is_told(answer: httpx.Response, status: int) -> bool:
    """Whether an answer has this status, and says why in the one key that callers know."""
    return answer.status_code == status and list(answer.json()) == ["error"] and answer.json()["error"] != ""


def is_of_another_form(answer: httpx.Response) -> bool:
    """Whether a sender is told that its body is no send, and in a header what is wrong with it."""
    is_told_why = answer.headers["Penstock-Detail"] != ""
    return answer.status_code == 400 and is_told_why and answer.json() == {"error": INVALID}


async def test_what_is_no_send_is_refused(person: Person) -> None:
    for content in NO_SENDS:
        answer = await person.http.post(SEND, content=content)
        assert is_of_another_form(answer), content[:100]


async def test_keys_are_those_of_a_send_and_values_of_their_kind(server: Server, person: Person) -> None:
    for changed in OF_ANOTHER_FORM:
        answer = await person.http.post(SEND, json=body(**changed))
        assert is_of_another_form(answer), changed
    assert len(server.broker.streams) == 0


@pytest.mark.parametrize(
    ("changed", "detail"),
    [
        ({"urgent": 1}, "Object contains unknown field `urgent`"),
        ({"message": ...}, "Object missing required field `message`"),
        ({"streamId": 1}, "Expected `str`, got `int` - at `$.streamId`"),
        ({"\u00fc\n": 1}, "Object contains unknown field `\\xfc\\n`"),
    ],
)
async def test_a_sender_learns_which_key_is_wrong(
    person: Person, changed: dict[str, Any], detail: str
) -> None:
    answer = await person.http.post(SEND, json=body(**changed))
    assert answer.headers["Penstock-Detail"] == detail
    assert answer.json() == {"error": INVALID}


async def test_values_that_cannot_be_are_refused_and_make_no_stream(server: Server, person: Person) -> None:
    for changed in IMPOSSIBLE:
        answer = await person.http.post(SEND, json=body(**changed))
        assert is_told(answer, 400), f"{changed}: {answer.text}"
        assert len(server.broker.streams) == 0, changed
    assert server.broker.counters.published == 0


async def test_a_uuid_in_any_of_its_forms_comes_back_as_it_was(person: Person, name: str) -> None:
    for message_id in (
        GOOD_ID.upper(),
        GOOD_ID.replace("-", ""),
        f"{{{GOOD_ID}}}",
        f"urn:uuid:{GOOD_ID}",
        "00000000-0000-0000-0000-000000000000",
    ):
        await person.send_all(name, 1, messageUuid=message_id)
        assert (await person.receive(name)).json()["messageUuid"] == message_id


async def test_what_may_be_left_out_may_be_null(person: Person, name: str) -> None:
    keys = ("inMemoryStreamSize", "blockingSendTimeoutSeconds", "writeToDB", "dbTTLSeconds")
    answer = await person.http.post(SEND, json=body(streamId=name, **dict.fromkeys(keys)))
    assert answer.status_code == 200, answer.text


async def test_a_server_s_own_topic_is_no_stream_for_senders(person: Person) -> None:
    answer = await person.send("$SYS/x", 1)
    assert is_told(answer, 403)


async def test_a_query_that_asks_for_nothing_sensible_is_refused(server: Server, person: Person) -> None:
    for query, text in BAD_QUERIES:
        answer = await person.http.get(f"{RECEIVE}?{query}")
        assert is_told(answer, 400), f"{query[:100]}: {answer.text}"
        assert text is None or answer.json() == {"error": text}
    assert len(server.broker.streams) == 0


async def test_the_query_of_a_send_may_only_say_how_long_it_waits(person: Person) -> None:
    for query in ("timeout=x", "another=1", "timeout=1s&timeout=2s"):
        assert is_told(await person.http.post(f"{SEND}?{query}", json=body()), 400), query


async def test_a_send_says_once_how_long_it_waits(person: Person) -> None:
    both = body(blockingSendTimeoutSeconds=1)
    answer = await person.http.post(f"{SEND}?timeout=1s", json=both)
    assert is_told(answer, 400)


async def test_other_paths_and_methods_are_refused_in_the_same_form(person: Person) -> None:
    for method, path, status in REFUSED_PATHS:
        answer = await person.http.request(method, path)
        assert is_told(answer, status), f"{method} {path}: {answer.text}"
        assert ("allow" in answer.headers) is (status == 405)


async def test_nobody_receives_a_message_by_asking_for_the_head_alone(person: Person, name: str) -> None:
    await person.send_all(name, "x")
    answer = await person.http.head(RECEIVE, params={"streamId": name})
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
    assert await person.take(name, 0) == "x"


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_page_of_another_origin_takes_no_message_away(person: Person, name: str, site: str) -> None:
    await person.send_all(name, "x")
    answer = await person.http.get(RECEIVE, params={"streamId": name}, headers={"Sec-Fetch-Site": site})
    assert is_told(answer, 403)
    own = await person.http.get(RECEIVE, params={"streamId": name}, headers={"Sec-Fetch-Site": "same-origin"})
    assert own.json()["message"] == "x"


async def test_a_page_that_is_not_welcome_takes_no_message_away_either(person: Person, name: str) -> None:
    await person.send_all(name, "x")
    page = {"Origin": "https://elsewhere.example"}
    assert is_told(await person.http.get(RECEIVE, params={"streamId": name}, headers=page), 403)
    own = {"Origin": str(person.http.base_url)}
    assert (await person.http.get(RECEIVE, params={"streamId": name}, headers=own)).json()["message"] == "x"


async def test_a_payload_that_is_too_large_is_refused(start: Start, name: str) -> None:
    server = await start(max_payload_bytes=1_000)
    async with client_of(server) as http:
        answer = await Person(http).send(name, "x" * 1_000)
        assert is_told(answer, 413)
        assert (await Person(http).send(name, "x" * 998)).status_code == 200


async def test_a_body_that_is_too_large_is_refused_in_the_same_form(person: Person, name: str) -> None:
    answer = await person.send(name, "x" * (9 << 20))
    assert is_told(answer, 413)


async def test_who_would_wait_as_one_too_many_is_told_to_come_again(start: Start, name: str) -> None:
    server = await start(streams=StreamSettings(max_streams=1))
    async with client_of(server) as http:
        await Person(http).send_all(name, 1)
        answer = await Person(http).send(f"{name}/other", 1)
    assert is_told(answer, 429)
    assert answer.headers["retry-after"]


@pytest.mark.parametrize("seed", range(3))
async def test_damaged_requests_are_answered_and_never_with_a_mistake_of_ours(
    person: Person, seed: int
) -> None:
    chance = random.Random(seed)
    whole = (
        b'{"streamId": "s", "messageUuid": "%b", "message": {"a": [1, null]},'
        b' "inMemoryStreamSize": 3, "blockingSendTimeoutSeconds": 0, "writeToDB": false, "dbTTLSeconds": 9}'
        % str(uuid4()).encode()
    )
    query = b"streamId=s&timeoutSeconds=0&readFromDB=false&dbResumeToken=&timeout"
    for _ in range(100):
        answer = await person.http.post(SEND, content=damaged(whole, chance, bytes(range(256))))
        assert answer.status_code in (200, 400), answer.text
        assert next(iter(answer.json())) == {200: "errorType", 400: "error"}[answer.status_code]
        text = damaged(query, chance, b"abcs=&%0123456789+-").decode()
        asked = text.replace("timeoutSeconds=", "timeoutSeconds=-").replace("%", "%25")
        if "timeoutSeconds=-" not in asked or "&timeoutSeconds=-" not in f"&{asked}":
            asked += "&timeoutSeconds=-1"
        answer = await person.http.get(f"{RECEIVE}?{asked}")
        assert answer.status_code in (200, 400, 424), answer.text
        assert answer.status_code == 200 or list(answer.json()) == ["error"]


def damaged(data: bytes, chance: random.Random, alphabet: bytes) -> bytes:
    """Some bytes with a few of them changed, missing or repeated."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(changed))
        match chance.randrange(3):
            case 0:
                changed[at] = chance.choice(alphabet)
            case 1:
                del changed[at : at + chance.randint(1, 9)]
            case _:
                changed[at:at] = changed[at : at + chance.randint(1, 9)]
    return bytes(changed)


@pytest.mark.parametrize(("method", "status"), [("HEAD", 405), ("POST", 405), ("OPTIONS", 204)])
async def test_a_receive_has_no_head_and_does_not_say_so(
    person: Person, name: str, method: str, status: int
) -> None:
    await person.send_all(name, 1)
    answer = await person.http.request(method, RECEIVE, params={"streamId": name})
    assert answer.status_code == status
    assert answer.headers["allow"] == ("GET, OPTIONS" if method == "OPTIONS" else "GET")
    assert await person.take(name, 0) == 1


async def test_of_a_key_that_is_there_twice_the_last_counts(person: Person, name: str) -> None:
    body = f'{{"streamId":"{name}","messageUuid":"{uuid4()}","message":1,"message":2}}'
    assert (await person.http.post(SEND, content=body)).status_code == 200
    assert await person.take(name, 0) == 2
