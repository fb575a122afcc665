"""Staging over HTTP: parts in either form, limits and rights, and a commit that is made once."""

import asyncio
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import msgspec
import polars as pl
import pyarrow as pa
import pytest
from argon2 import PasswordHasher

from penstock.app import Server
from penstock.core.settings import AccessSettings, StageSettings
from penstock.errors import StorageUnavailable
from penstock.storage.disk.rocksdb.store import Changes, Store
from penstock.wire.arrow import MEDIA_TYPE as ARROW
from penstock.wire.json_values import MEDIA_TYPE as JSON_LINES
from tests.doors.serving import EVERYTHING, Start, client_of, mqtt_of
from tests.support.waiting import until

STAGE = "/api/v1/stage"


def lines(*rows: dict[str, Any]) -> bytes:
    return msgspec.json.Encoder().encode_lines(rows)


def arrow(**columns: Any) -> bytes:
    batch = pa.record_batch(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


async def stage(
    http: httpx.AsyncClient, id: str, body: bytes, kind: str = JSON_LINES, part: int | None = None
) -> httpx.Response:
    parameters = {} if part is None else {"part": part}
    return await http.post(f"{STAGE}/{id}", params=parameters, content=body, headers={"Content-Type": kind})


async def commit(http: httpx.AsyncClient, key: str, *ids: str) -> httpx.Response:
    return await http.post(f"{STAGE}/commit", json={"key": key, "ids": ids})


async def values(http: httpx.AsyncClient, topic: str) -> list[Any]:
    answer = await http.get(f"/api/v1/topics/{topic}/messages", params={"last": 1000})
    assert answer.status_code == 200, answer.text
    return [message["data"] for message in answer.json()["messages"]]


def problem(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["code"]


# The way of a message


@pytest.mark.parametrize("is_durable", [False, True])
async def test_parts_are_published_together_by_their_commit(
    start: Start, tmp_path: Path, name: str, is_durable: bool
) -> None:
    stored: dict[str, Any] = {"data_dir": str(tmp_path / "data"), "log": EVERYTHING} if is_durable else {}
    server = await start(**stored)
    async with client_of(server) as http, mqtt_of(server) as listener:
        await listener.subscribe("#", qos=1)
        await stage(http, "one", lines({"topic": name, "data": {"n": 1}}, {"topic": name, "payload": "2"}))
        await stage(http, "two", arrow(topic=[name], payload=[b"3"]), ARROW, part=0)
        answer = await stage(http, "two", arrow(topic=[name], payload=[b"4"]), ARROW, part=1)
        assert answer.status_code == 201
        assert {key: answer.json()[key] for key in ("id", "part", "rows")} == {
            "id": "two",
            "part": 1,
            "rows": 1,
        }
        assert answer.json()["lapses_at"].endswith("Z")
        unseen = await http.get(f"/api/v1/topics/{name}/messages", params={"last": 10})
        assert problem(unseen) == (404, "unknown-topic")
        answer = await commit(http, "key", "one", "two")
        assert answer.status_code == 200
        assert (answer.json()["rows"], answer.json()["duplicate"]) == (4, False)
        assert await values(http, name) == [{"n": 1}, 2, 3, 4]
        received = [bytes((await anext(listener.messages)).payload) for _ in range(4)]
        assert received == [b'{"n":1}', b"2", b"3", b"4"]


async def test_the_cursors_of_the_answer_enclose_the_rows(stored_http: httpx.AsyncClient, name: str) -> None:
    http = stored_http
    await http.post("/api/v1/publish", json={"topic": name, "data": "before"})
    await stage(http, "x", lines(*({"topic": name, "data": number} for number in range(5))))
    answer = (await commit(http, "key", "x")).json()
    await http.post("/api/v1/publish", json={"topic": name, "data": "after"})
    log = await http.get("/api/v1/log", params={"after": answer["first"], "until": answer["last"]})
    rows = pa.ipc.open_stream(log.content).read_all()
    assert rows.column("payload").to_pylist() == [b"0", b"1", b"2", b"3", b"4"]
    assert set(rows.column("door").to_pylist()) == {"web"}


async def test_what_polars_writes_is_staged(http: httpx.AsyncClient, name: str) -> None:
    file = BytesIO()
    frame = pl.DataFrame({"topic": [name] * 3, "payload": ["1", "2", "3"], "qos": [1, 1, 1]})
    frame.write_ipc_stream(file, compression="zstd")
    assert (await stage(http, "x", file.getvalue(), ARROW)).json()["rows"] == 3
    await commit(http, "key", "x")
    assert await values(http, name) == [1, 2, 3]


async def test_the_same_part_again_replaces_the_first(http: httpx.AsyncClient, name: str) -> None:
    for value in ("old", "new"):
        await stage(http, "x", lines({"topic": name, "data": value}), part=3)
    await commit(http, "key", "x")
    assert await values(http, name) == ["new"]


async def test_a_stage_says_what_waits_in_it(http: httpx.AsyncClient) -> None:
    await stage(http, "x", lines({"topic": "a", "data": 1}), part=2)
    latest = (await stage(http, "x", b"", part=1)).json()
    answer = (await http.get(f"{STAGE}/x")).json()
    assert answer["rows"] == 1
    assert answer["lapses_at"] == (await http.get(f"{STAGE}/x")).json()["lapses_at"] == latest["lapses_at"]
    assert [(part["part"], part["rows"]) for part in answer["parts"]] == [(1, 0), (2, 1)]


async def test_stages_are_listed_by_name_a_page_at_a_time(http: httpx.AsyncClient) -> None:
    for id in ("run-1:b", "run-1:a", "run-1:c", "run-2:a"):
        await stage(http, id, lines({"topic": "a", "data": 1}, {"topic": "a", "data": 2}))
    latest = (await stage(http, "run-1:b", lines({"topic": "a", "data": 3}), part=1)).json()
    first = (await http.get(STAGE, params={"prefix": "run-1:", "limit": 2})).json()
    assert [(entry["id"], entry["rows"], entry["parts"]) for entry in first["stages"]] == [
        ("run-1:a", 2, 1),
        ("run-1:b", 3, 2),
    ]
    assert first["stages"][1]["lapses_at"] == latest["lapses_at"]
    assert first["stages"][1]["bytes"] > first["stages"][0]["bytes"] > 0
    assert (first["next"], first["matching"]) == ("run-1:b", 3)
    rest = (await http.get(STAGE, params={"prefix": "run-1:", "after": first["next"]})).json()
    assert ([entry["id"] for entry in rest["stages"]], rest["next"]) == (["run-1:c"], None)
    assert (await http.get(STAGE, params={"prefix": "run-3"})).json()["stages"] == []


async def test_a_commit_may_be_known_by_its_key_alone(http: httpx.AsyncClient, name: str) -> None:
    for id, value in (("x", 1), ("y", 2)):
        await stage(http, id, lines({"topic": name, "data": value}))
    first = (await commit(http, "key", "x")).json()
    assert problem(await commit(http, "key", "y")) == (409, "conflict")
    again = await http.post(f"{STAGE}/commit", json={"key": "key", "ids": ["y"], "any_ids": True})
    assert again.json() == first | {"duplicate": True}
    assert await values(http, name) == [1]


async def test_a_commit_that_knows_the_rows_publishes_all_of_them_or_nothing(
    http: httpx.AsyncClient, name: str
) -> None:
    for part in (0, 7):
        await stage(http, "x", lines({"topic": name, "data": part}), part=part)
    told = {"key": "key", "ids": ["x"]}
    assert problem(await http.post(f"{STAGE}/commit", json=told | {"rows": [3]})) == (409, "conflict")
    assert (await http.get(f"{STAGE}/x")).json()["rows"] == 2
    assert (await http.post(f"{STAGE}/commit", json=told | {"rows": [2]})).json()["rows"] == 2
    assert await values(http, name) == [0, 7]


async def test_a_dropped_stage_cannot_be_committed(http: httpx.AsyncClient) -> None:
    await stage(http, "x", lines({"topic": "a", "data": 1}))
    assert (await http.delete(f"{STAGE}/x")).status_code == 204
    assert problem(await commit(http, "key", "x")) == (404, "unknown-stage")
    assert problem(await http.delete(f"{STAGE}/x")) == (404, "unknown-stage")
    assert problem(await http.get(f"{STAGE}/x")) == (404, "unknown-stage")


async def test_a_commit_that_is_asked_for_many_times_is_made_once(http: httpx.AsyncClient, name: str) -> None:
    await stage(http, "x", lines(*({"topic": name, "data": number} for number in range(50))))
    answers = await asyncio.gather(*(commit(http, "key", "x") for _ in range(5)))
    answers.append(await commit(http, "key", "x"))
    told = [answer.json() for answer in answers]
    assert sorted(answer.pop("duplicate") for answer in told) == [False] + [True] * 5
    assert all(answer == told[0] for answer in told)
    assert await values(http, name) == list(range(50))
    assert problem(await commit(http, "key", "y")) == (409, "conflict")


# What is refused


@pytest.mark.parametrize(
    ("body", "kind", "status", "code", "words"),
    [
        (b'{"topic":"a","data":1}\n\n{"topic":"a"}', JSON_LINES, 400, "invalid-request", "line 3"),
        (b'{"topic":"a","data":1}\n{"topic"', JSON_LINES, 400, "invalid-request", "line 2"),
        (b'{"topic":"a","data":1,"que":1}', JSON_LINES, 400, "invalid-request", "que"),
        (b'{"topic":"a","data":1,"qos":3}', JSON_LINES, 400, "invalid-request", "line 1"),
        (b'{"topic":"a/#","data":1}', JSON_LINES, 400, "invalid-topic", "row 0"),
        (b'{"topic":"$SYS/x","data":1}', JSON_LINES, 403, "not-authorized", "row 0"),
        (b'{"topic":"a","data":{"$bytes":"?"}}', JSON_LINES, 400, "invalid-payload", "line 1"),
        (b"not arrow", ARROW, 400, "invalid-request", "Arrow"),
        (arrow(topic=["a"], payload=[b"x"])[:-9], ARROW, 400, "invalid-request", "Arrow"),
        (arrow(topic=["a"], payload=[b"x"], qos=[7]), ARROW, 400, "invalid-request", "row 0"),
        (arrow(topic=["a", "b/+"], payload=[b"x", b"x"]), ARROW, 400, "invalid-topic", "row 1"),
        (b"topic,payload", "text/csv", 415, "unsupported-media", JSON_LINES),
    ],
)
async def test_a_part_with_a_bad_row_is_refused_whole(
    http: httpx.AsyncClient, body: bytes, kind: str, status: int, code: str, words: str
) -> None:
    answer = await stage(http, "x", body, kind)
    assert problem(answer) == (status, code)
    assert words in answer.json()["detail"]
    assert problem(await http.get(f"{STAGE}/x")) == (404, "unknown-stage")


async def test_a_body_that_is_encoded_is_refused(http: httpx.AsyncClient) -> None:
    headers = {"Content-Type": JSON_LINES, "Content-Encoding": "gzip"}
    answer = await http.post(f"{STAGE}/x", content=b"x", headers=headers)
    assert problem(answer) == (415, "unsupported-media")


@pytest.mark.parametrize("id", ["a%20b", "%C3%A4", "x" * 201, "a*"])
async def test_a_bad_name_is_refused(http: httpx.AsyncClient, id: str) -> None:
    assert problem(await stage(http, id, b"")) == (400, "invalid-request")


@pytest.mark.parametrize(
    "body",
    [
        {"key": "", "ids": []},
        {"key": "k"},
        {"key": "k", "ids": ["x", "x"]},
        {"key": "k", "ids": [], "x": 1},
        {"key": "k", "ids": [], "rows": [1]},
        {"key": "k", "ids": ["x"], "rows": [-1]},
    ],
)
async def test_a_commit_that_says_too_little_or_too_much_is_refused(
    http: httpx.AsyncClient, body: dict[str, Any]
) -> None:
    assert problem(await http.post(f"{STAGE}/commit", json=body)) == (400, "invalid-request")


@pytest.mark.parametrize("kind", [None, "application/x-www-form-urlencoded"])
async def test_a_commit_is_json_whether_it_says_so_or_not(http: httpx.AsyncClient, kind: str | None) -> None:
    await stage(http, "x", lines({"topic": "a", "data": 1}))
    headers = {} if kind is None else {"Content-Type": kind}
    answer = await http.post(f"{STAGE}/commit", content=b'{"key": "k", "ids": ["x"]}', headers=headers)
    assert (answer.status_code, answer.json()["rows"]) == (200, 1)


async def test_a_commit_that_says_it_is_something_else_is_refused(http: httpx.AsyncClient) -> None:
    answer = await http.post(f"{STAGE}/commit", content=b"{}", headers={"Content-Type": "text/csv"})
    assert problem(answer) == (415, "unsupported-media")


@pytest.mark.parametrize("kind", [JSON_LINES, ARROW])
async def test_no_stage_is_called_commit(http: httpx.AsyncClient, kind: str) -> None:
    answer = await stage(http, "commit", b"", kind)
    assert problem(answer) == (400, "invalid-request")
    assert "not a valid name for a stage" in answer.json()["detail"]
    answer = await stage(http, "commit", b"", kind, part=1)
    assert problem(answer) == (400, "invalid-request")
    assert answer.json()["detail"] == "POST /api/v1/stage/commit has no parameter 'part'"


@pytest.mark.parametrize("part", [-1, 100_000])
async def test_a_bad_part_is_refused(http: httpx.AsyncClient, part: int) -> None:
    assert problem(await stage(http, "x", b"", part=part)) == (400, "invalid-request")


async def test_there_is_a_limit_for_a_part_and_for_all_of_them(start: Start) -> None:
    server = await start(stage=StageSettings(max_part_bytes=100_000, max_bytes=150_000, max_stages=2))
    row = lines({"topic": "a", "payload": "x" * 60_000})
    async with client_of(server) as http:
        assert problem(await stage(http, "x", row * 2)) == (413, "too-large")
        packed = pl.DataFrame({"topic": ["a"] * 200, "payload": ["x" * 1000] * 200})
        file = BytesIO()
        packed.write_ipc_stream(file, compression="zstd")
        assert problem(await stage(http, "x", file.getvalue(), ARROW)) == (413, "too-large")
        assert (await stage(http, "x", row)).status_code == 201
        answer = await stage(http, "y", row + row[:-30_000])
        assert problem(answer) == (429, "quota-exceeded")
        assert answer.headers["retry-after"] == "1"
        assert (await stage(http, "y", b"")).status_code == 201
        assert problem(await stage(http, "z", b"")) == (429, "quota-exceeded")
        await http.delete(f"{STAGE}/x")
        assert (await stage(http, "y", row)).status_code == 201
    assert server.broker.staging.bytes < 70_000


@pytest.mark.parametrize("kind", [ARROW, JSON_LINES])
async def test_there_is_a_limit_for_the_rows_of_a_part(start: Start, kind: str) -> None:
    server = await start(stage=StageSettings(max_part_rows=3))
    async with client_of(server) as http:
        for count, status in ((3, 201), (4, 413)):
            body = (
                arrow(topic=["a"] * count, payload=[b"x"] * count)
                if kind == ARROW
                else lines(*[{"topic": "a", "data": 1}] * count)
            )
            assert (await stage(http, "x", body, kind)).status_code == status


async def test_a_line_that_is_far_too_long_is_not_even_read(start: Start) -> None:
    server = await start(max_payload_bytes=1000)
    async with client_of(server) as http:
        answer = await stage(http, "x", lines({"topic": "a", "data": 1}) + b"[" * 1_100_000)
        assert problem(answer) == (413, "too-large")
        assert answer.json()["detail"] == "line 2: a line may have 1050576 bytes"


async def test_a_body_that_breaks_off_leaves_no_bytes_behind(start: Start) -> None:
    server = await start()

    async def body() -> Any:
        yield b'{"topic":"a",'
        raise ConnectionError("gone")

    async with client_of(server) as http:
        with pytest.raises(ConnectionError):
            await http.post(f"{STAGE}/x", content=body(), headers={"Content-Type": JSON_LINES})
        assert problem(await http.get(f"{STAGE}/x")) == (404, "unknown-stage")
        await until(lambda: not server.broker.staging.bytes, "staged bytes are still there")


async def test_stages_are_for_whoever_made_them(start: Start, tmp_path: Path) -> None:
    (tmp_path / "acl").write_text(
        "user ann\npublish #\nuser bob\npublish b/#\nsubscribe b/#\n", encoding="utf-8"
    )
    hasher = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    users = "".join(f"{user}:{hasher.hash('secret')}\n" for user in ("ann", "bob"))
    (tmp_path / "passwords").write_text(users, encoding="utf-8")
    files = AccessSettings(password_file=str(tmp_path / "passwords"), acl_file=str(tmp_path / "acl"))
    server = await start(access=files)
    async with (
        client_of(server, auth=("ann", "secret")) as ann,
        client_of(server, auth=("bob", "secret")) as bob,
        client_of(server) as nobody,
    ):
        assert problem(await stage(nobody, "x", b"")) == (401, "bad-credentials")
        assert (await stage(ann, "x", lines({"topic": "a", "data": 1}))).status_code == 201
        assert problem(await stage(bob, "y", lines({"topic": "a", "data": 1}))) == (403, "not-authorized")
        for attempt in (
            stage(bob, "x", b""),
            commit(bob, "k", "x"),
            bob.get(f"{STAGE}/x"),
            bob.delete(f"{STAGE}/x"),
        ):
            answer = await attempt
            assert problem(answer) == (403, "not-authorized")
            assert answer.json()["detail"] == "the stage x belongs to another owner"
        assert (await stage(bob, "y", lines({"topic": "b/1", "data": 1}))).status_code == 201
        assert (await commit(bob, "k", "y")).json()["rows"] == 1
        (tmp_path / "acl").write_text("user ann\npublish b\n", encoding="utf-8")
        server.reload()
        assert problem(await commit(ann, "k", "x")) == (403, "not-authorized")


async def test_a_stage_lapses(start: Start) -> None:
    server = await start(stage=StageSettings(lapse_s=0.05), reaper_interval_ms=10)
    async with client_of(server) as http:
        assert (await stage(http, "x", lines({"topic": "a", "data": 1}))).status_code == 201
        await until(lambda: not server.broker.staging.stages, "a stage is still there")
        assert problem(await commit(http, "k", "x")) == (404, "unknown-stage")


async def test_a_large_commit_lets_others_be_served(stored_server: Server, name: str) -> None:
    """Between two slices there is a turn for everyone: others are published amid the rows."""
    rows = arrow(topic=[name] * 40_000, payload=[b"x" * 100] * 40_000)
    async with client_of(stored_server) as http:
        assert (await stage(http, "x", rows, ARROW)).status_code == 201
        committing = asyncio.create_task(commit(http, "key", "x"))
        served = 0
        while not committing.done():
            answer = await http.post("/api/v1/publish", json={"topic": "other", "data": served})
            assert answer.status_code == 200
            served += not committing.done()
        assert (await committing).json()["rows"] == 40_000
    assert served >= 2


@pytest.mark.parametrize("good_writes", range(5))
async def test_a_disk_that_fails_amid_a_commit_repeats_and_loses_no_row(
    stored_server: Server, name: str, good_writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [b"%d" % number for number in range(10_000)]
    write, writes = Store.write, 0

    def fail_sometimes(store: Store, changes: Changes, *, sync: bool) -> None:
        nonlocal writes
        writes += 1
        if good_writes < writes <= good_writes + 2:
            raise StorageUnavailable("the disk is full")
        write(store, changes, sync=sync)

    async with client_of(stored_server) as http:
        await stage(http, "x", arrow(topic=[name] * len(rows), payload=rows), ARROW)
        with monkeypatch.context() as patch:
            patch.setattr(Store, "write", fail_sometimes)
            answer = await commit(http, "key", "x")
            while answer.status_code == 503:
                assert answer.json()["retryable"]
                await asyncio.sleep(0.05)
                answer = await commit(http, "key", "x")
            assert writes > good_writes
        assert answer.json()["rows"] == len(rows)
        log = await http.get("/api/v1/log", params={"filter": name, "from": "earliest"})
        assert pa.ipc.open_stream(log.content).read_all().column("payload").to_pylist() == rows
    assert stored_server.broker.staging.bytes == 0
