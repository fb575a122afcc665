"""Publishing over HTTP to a server with a data directory: 200 means stored, and ids outlive a crash."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.app import Server
from penstock.doors.web.api.publish import PATH
from tests.doors.serving import EVERYTHING, Start, client_of
from tests.faults.durable.homes import Home, MakeHome, homes_below
from tests.support.fork_server import ForkServer
from tests.support.samples import readable
from tests.support.waiting import until

MESSAGES = 300
DISK_BYTES = 8 << 20
BALLAST_BYTES = 3 << 20


async def post(http: httpx.AsyncClient, body: Any) -> dict[str, Any]:
    """Publish what must be taken, and tell the receipt."""
    answer = await http.post(PATH, json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def stored_payloads(server: Server, topic: str) -> list[bytes]:
    """What the log has of a topic, committed or not."""
    log = server.broker.log
    return [run.payload() for run in readable(log.scan(0, lambda name: name == topic))]


async def test_a_receipt_says_that_the_message_is_stored(
    stored_server: Server, stored_http: httpx.AsyncClient, name: str
) -> None:
    receipt = await post(stored_http, {"topic": name, "data": 1})
    assert receipt["stored"] is True
    assert stored_payloads(stored_server, name) == [b"1"]


async def test_an_answer_comes_after_the_commit(
    stored_server: Server, stored_http: httpx.AsyncClient, name: str
) -> None:
    for number in range(20):
        receipts = await post(stored_http, [{"topic": name, "data": number}] * 10)
        offset = stored_server.broker.log.last_offset
        assert receipts["receipts"][-1]["sequence"] == 10 * (number + 1)
        assert len(stored_payloads(stored_server, name)) == 10 * (number + 1), offset


async def test_messages_at_level_zero_are_stored_where_the_log_keeps_everything(
    stored_http: httpx.AsyncClient, name: str
) -> None:
    assert (await post(stored_http, {"topic": name, "data": 1, "qos": 0}))["stored"] is True


async def test_what_the_log_does_not_keep_is_not_stored(start: Start, tmp_path: Path, name: str) -> None:
    server = await start(data_dir=str(tmp_path / "data"))
    async with client_of(server) as http:
        assert (await post(http, {"topic": name, "data": 1}))["stored"] is False
        assert (await post(http, {"topic": name, "data": 1, "retain": True}))["stored"] is True


async def test_many_at_once_with_one_id_wait_for_the_same_commit(
    stored_server: Server, stored_http: httpx.AsyncClient, name: str
) -> None:
    message = {"topic": name, "data": 1, "message_id": "m"}
    receipts = await asyncio.gather(*(post(stored_http, message) for _ in range(20)))
    assert sum("duplicate" not in receipt for receipt in receipts) == 1
    assert stored_payloads(stored_server, name) == [b"1"]


async def test_an_id_is_known_after_a_restart(start: Start, tmp_path: Path, name: str) -> None:
    message = {"topic": name, "data": 1, "message_id": "m"}
    data: dict[str, Any] = {"data_dir": str(tmp_path / "data"), "log": EVERYTHING}
    server = await start(**data)
    async with client_of(server) as http:
        first = await post(http, message)
    await start.stop(server)
    server = await start(**data)
    async with client_of(server) as http:
        second = await post(http, message)
        assert second == {**first, "duplicate": True}
        third = await post(http, {**message, "message_id": "other"})
    assert (third["sequence"], third["epoch"]) == (2, 2)
    assert stored_payloads(server, name) == [b"1", b"1"]


# A server that is killed


@pytest.fixture
async def make_home(tmp_path: Path, fork_server: ForkServer | None) -> AsyncIterator[MakeHome]:
    """Makes data directories that servers live on, and lets no server outlive its test."""
    async for make in homes_below(tmp_path, fork_server):
        yield make


def http_of(home: Home) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{home.server.port_of('http')}", timeout=20)


async def test_after_a_kill_every_message_that_is_sent_again_is_there_once(
    make_home: MakeHome, name: str
) -> None:
    home = make_home({"http": {"port": 0}})
    await home.open()
    known: dict[int, dict[str, Any]] = {}

    async def send(http: httpx.AsyncClient, numbers: Iterable[int]) -> None:
        for number in numbers:
            known[number] = await post(http, {"topic": name, "data": number, "message_id": str(number)})

    async def send_all() -> None:
        """Every message, on ten connections."""
        async with http_of(home) as http:
            parts = (range(first, MESSAGES, 10) for first in range(10))
            await asyncio.gather(*(send(http, part) for part in parts))

    sending = asyncio.create_task(send_all())
    await until(
        lambda: len(known) >= MESSAGES // 3, "fewer than a third of the messages are known", every_s=0
    )
    home.kill()
    with pytest.raises(httpx.TransportError):
        await sending
    before = dict(known)
    await home.open()
    await send_all()
    assert {number: known[number] for number in before} == {
        number: {**receipt, "duplicate": True} for number, receipt in before.items()
    }
    async with http_of(home) as http:
        answer = await http.get(
            f"/api/v1/topics/{name}/messages", params={"after_sequence": 0, "limit": 1_000}
        )
    messages = answer.json()["messages"]
    assert sorted(message["data"] for message in messages) == list(range(MESSAGES))
    places = {message["data"]: message["sequence"] for message in messages}
    assert places == {number: receipt["sequence"] for number, receipt in known.items()}
    await home.close()


# A disk that is full


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that is soon full, with something on it that can be taken away."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "penstock-tests", str(folder)]
    mounted = subprocess.run(words, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


async def test_a_full_disk_is_told_and_nothing_that_was_refused_is_there_later(
    start: Start, small_disk: Path, name: str
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    server = await start(data_dir=str(small_disk / "data"), log=EVERYTHING)
    taken, refused = list[int](), list[int]()
    async with client_of(server) as http:

        async def send(number: int) -> httpx.Response:
            message = {"topic": name, "data": [number, "x" * 20_000], "message_id": str(number)}
            return await http.post(PATH, json=message)

        for number in range(1_000):
            answer = await send(number)
            if answer.status_code == 200:
                taken.append(number)
                continue
            refused.append(number)
            problem = answer.json()
            assert (answer.status_code, problem["code"]) == (503, "storage-unavailable")
            assert problem["retryable"] is True and answer.headers["retry-after"] == "1"
            if len(refused) == 20:
                break
        assert len(refused) == 20
        ballast.unlink()

        async def accepted() -> httpx.Response | None:
            answer = await send(refused[0])
            return answer if answer.status_code == 200 else None

        answer = await until(accepted, "messages are still refused", every_s=0.05)
        assert "duplicate" not in answer.json()
        for number in refused[1:]:
            answer = await send(number)
            assert (answer.status_code, answer.json().get("duplicate")) == (200, None)
        assert (await send(taken[0])).json()["duplicate"] is True
    numbers = [json.loads(payload)[0] for payload in stored_payloads(server, name)]
    assert sorted(numbers) == sorted(taken + refused)
