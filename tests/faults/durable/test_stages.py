"""kill -9 between a stage and its commit, and amid the commit: every row is in the log once, in order."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any

import httpx
import pyarrow as pa
import pytest

from penstock.wire.arrow import MEDIA_TYPE as ARROW
from tests.faults.durable.homes import Home, MakeHome
from tests.support.waiting import TIMEOUT_S, until

ROWS = 8_000
"""Of each part; a commit takes several slices for it."""
BATCH_ROWS = 4 * ROWS
STAGE = "/api/v1/stage"
STAGED_WITHIN_S, COMMITTED_WITHIN_S = 0.5, 0.3
"""About how long a batch takes; kills come at any time of it."""


class Driver:
    """Writes batches as a streaming query does: stages its partitions, commits them, tries again."""

    def __init__(self, home: Home) -> None:
        self._home = home

    async def stage(self, batch: int) -> None:
        """Stage a batch, however often the server goes away meanwhile."""
        for id in ids_of(batch):
            for part in range(2):
                await self._until_answered(partial(_stage, id, part))

    async def commit(self, batch: int) -> dict[str, Any]:
        """Commit a batch, however often the server goes away meanwhile; answer what it said in the end."""
        body = {"key": f"query:{batch}", "ids": ids_of(batch)}
        answer = await self._until_answered(lambda http: http.post(f"{STAGE}/commit", json=body))
        told: dict[str, Any] = answer.json()
        return told

    async def write(self, batch: int) -> dict[str, Any]:
        """Both."""
        await self.stage(batch)
        return await self.commit(batch)

    async def offset(self) -> int:
        """The last offset that is safe."""
        answer = await self._until_answered(lambda http: http.get("/api/v1/log/position?at=latest"))
        return int(answer.json()["offset"])

    async def logged(self) -> list[bytes]:
        """The payloads of all rows in the log."""
        answer = await self._until_answered(lambda http: http.get("/api/v1/log?from=earliest&filter=out/%23"))
        found: list[bytes] = pa.ipc.open_stream(answer.content).read_all().column("payload").to_pylist()
        return found

    async def _until_answered(
        self, ask: Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]
    ) -> httpx.Response:
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                try:
                    async with self._client() as http:
                        answer = await ask(http)
                except httpx.TransportError:  # the server is gone
                    await asyncio.sleep(0.01)
                    continue
                assert answer.is_success, answer.text
                return answer

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[httpx.AsyncClient]:
        await until(lambda: self._home.is_running, "the server does not run", timeout_s=120)
        port = self._home.server.port_of("http")
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
            yield http


async def _stage(id: str, part: int, http: httpx.AsyncClient) -> httpx.Response:
    batch = pa.record_batch({"topic": [f"out/{part}"] * ROWS, "payload": payloads(id, part)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    body, headers = sink.getvalue().to_pybytes(), {"Content-Type": ARROW}
    return await http.post(f"{STAGE}/{id}", params={"part": part}, content=body, headers=headers)


def ids_of(batch: int) -> list[str]:
    return [f"query:{batch}:{partition}" for partition in range(2)]


def payloads(id: str, part: int) -> list[bytes]:
    return [f"{id}/{part}/{number}".encode() for number in range(ROWS)]


def rows_of(batch: int) -> list[bytes]:
    return [row for id in ids_of(batch) for part in range(2) for row in payloads(id, part)]


async def test_kills_while_batches_are_written_repeat_and_lose_no_row(
    make_home: MakeHome, dice: Random, scale: int
) -> None:
    """Three kills; thirty in a soak."""
    home = make_home({"http": {"port": 0}})
    await home.open()
    driver = Driver(home)
    for batch in range(3 * scale):
        is_staged = dice.random() < 0.6
        if is_staged:
            await driver.stage(batch)
        writing = asyncio.create_task(driver.commit(batch) if is_staged else driver.write(batch))
        await asyncio.wait(
            [writing], timeout=dice.random() * (COMMITTED_WITHIN_S if is_staged else STAGED_WITHIN_S)
        )
        await home.killed_and_back()
        told = await writing
        assert told["rows"] == BATCH_ROWS
        assert await driver.commit(batch) == told | {"duplicate": True}
    assert await driver.logged() == [row for batch in range(3 * scale) for row in rows_of(batch)]
    home.was_well()


@pytest.mark.timeout(300)  # it begins anew until a kill has come amid a commit
async def test_a_commit_that_a_kill_has_cut_short_goes_on_by_itself(make_home: MakeHome) -> None:
    """Nobody asks again: the next server knows what was decided."""
    home = make_home({"http": {"port": 0}, "sys_interval_s": 0})
    await home.open()
    driver = Driver(home)
    for batch in range(20):
        await driver.stage(batch)
        before = await driver.offset()
        committing = asyncio.create_task(driver.commit(batch))
        while not (done := await driver.offset() - before) and not committing.done():
            pass
        committing.cancel()
        home.kill()
        await home.open()
        if 0 < done < BATCH_ROWS:
            break
    else:
        raise AssertionError("no kill came amid a commit")

    async def is_committed() -> bool:
        return await driver.offset() >= before + BATCH_ROWS

    await until(is_committed, "the batch was not committed", timeout_s=120)
    assert (await driver.logged())[-BATCH_ROWS:] == rows_of(batch)
    assert len(set(await driver.logged())) == await driver.offset()
    home.was_well()


async def test_what_is_staged_and_never_committed_is_never_seen(make_home: MakeHome) -> None:
    home = make_home({"http": {"port": 0}})
    await home.open()
    driver = Driver(home)
    await driver.stage(0)
    await home.killed_and_back()
    await driver.write(1)
    assert await driver.logged() == rows_of(1)
