"""A server with a log, and readers of it."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
from msgspec import Struct, json

from penstock.app import Server
from penstock.common.cursor import Cursor, Position
from penstock.config import Settings
from penstock.core.settings import LogSettings
from penstock.doors.mqtt.settings import MqttSettings
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.net.http.settings import HttpSettings
from penstock.storage.disk.log import DiskLog
from penstock.storage.disk.scan import Request, Scan
from penstock.storage.disk.snapshot import open_snapshot
from tests.doors.serving import client_of

LOG = "/api/v1/log"
KEEP_ALL = LogSettings(capture=("#", "$penstock/#"), retention_s=0, retention_bytes=0)

Row = dict[str, Any]


class Answer(Struct):
    """What one read of the log brought."""

    rows: list[Row]
    statement: dict[str, Any]
    batches: list[pa.RecordBatch]
    headers: dict[str, str]

    @property
    def offsets(self) -> list[int]:
        return [row["offset"] for row in self.rows]

    @property
    def gaps(self) -> list[tuple[int, int, str]]:
        return [(gap["first"], gap["last"], gap["reason"]) for gap in self.statement["gaps"]]


def answer_in(data: bytes, headers: dict[str, str] | None = None) -> Answer:
    """What a reader makes of a whole answer."""
    reader = pa.ipc.open_stream(data)
    batches: list[pa.RecordBatch] = []
    statement = None
    while True:
        try:
            batch, metadata = reader.read_next_batch_with_custom_metadata()
        except StopIteration:
            break
        assert statement is None, "the statement comes last"
        if metadata is not None:
            assert batch.num_rows == 0
            statement = json.decode(metadata["penstock.statement"])
        else:
            batches.append(batch)
    assert statement is not None, "every read ends with a statement"
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert statement["served"] == len(rows)
    return Answer(rows, statement, batches, headers or {})


class LogSite:
    """A server with a data directory, and a client of it."""

    def __init__(self, server: Server, client: httpx.AsyncClient, path: Path) -> None:
        self.server = server
        self.client = client
        self.path = path

    @property
    def disk(self) -> DiskLog:
        assert isinstance(self.server._storage.log, DiskLog)
        return self.server._storage.log

    async def publish(self, topic: str, *payloads: bytes) -> None:
        """Publish in one commit, and wait for it."""
        for payload in payloads:
            self.server.broker.publish_server(topic, payload)
        await self.committed()

    async def committed(self) -> None:
        """Wait until everything that was published is stored."""
        broker = self.server.broker
        settled: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        broker.commit_soon()
        broker.when_flushed(lambda: self.disk.when_committed(self.disk.ticket, settled.set_result))
        assert await settled is None

    def seal(self) -> None:
        """Make a batch of everything that is not sealed."""
        assert self.disk._sealer.seal_now() > 0

    async def trim(self, limit_bytes: int) -> None:
        """Let everything leave that is more than that, but for the newest piece."""
        self.disk._retention.settings = LogSettings(retention_s=0, retention_bytes=limit_bytes)
        self.disk.trim(None)
        assert self.disk._trimming is not None
        await asyncio.wrap_future(self.disk._trimming)

    def cursor(self, offset: int, epoch: int | None = None, log_id: str | None = None) -> str:
        position = Position(log_id or self.disk.log_id, epoch or self.disk.epoch, offset)
        return Cursor((position,)).encode()

    async def get(self, path: str = "", **parameters: Any) -> httpx.Response:
        return await self.client.get(LOG + path, params=_query(parameters))

    async def read(self, **parameters: Any) -> Answer:
        """Read the log; `from_` stands for `from`."""
        response = await self.get(**parameters)
        assert response.status_code == 200, response.text
        return answer_in(response.content, dict(response.headers))

    async def refused(self, path: str = "", **parameters: Any) -> tuple[int, str]:
        """The status and the code that a request is refused with."""
        response = await self.get(path, **parameters)
        assert response.headers["content-type"] == "application/problem+json"
        return response.status_code, response.json()["code"]

    @asynccontextmanager
    async def opened(self, **parameters: Any) -> AsyncIterator[httpx.Response]:
        """A read of which only the head was read."""
        async with self.client.stream("GET", LOG, params=_query(parameters)) as response:
            yield response

    def read_by_command(self, **request: Any) -> tuple[list[Row], Any]:
        """The rows and the statement that `penstock log read` comes to."""
        with open_snapshot(self.path) as snapshot:
            scan = Scan(snapshot, Request(**request))
            rows = [row for batch in scan.batches() for row in batch.to_pylist()]
            return rows, scan.statement()


def _query(parameters: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    named = {name.rstrip("_"): value for name, value in parameters.items()}
    return tuple((name, str(each)) for name, value in named.items() for each in _values(value))


def _values(value: object) -> Iterator[object]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        yield from value
    else:
        yield value


@asynccontextmanager
async def log_site(path: Path, **settings: Any) -> AsyncIterator[LogSite]:
    """A site on a data directory, new or not; its server is stopped at the end."""
    mine: dict[str, Any] = {
        "mqtt": MqttSettings(port=0),
        "http": HttpSettings(port=(0,)),
        "sidecar": SidecarSettings(port=None),
        "log": KEEP_ALL,
        "sys_interval_s": 0,
        "shutdown_timeout_s": 1.0,
    }
    server = Server(Settings(**{**mine, "data_dir": str(path), **settings}))
    await server.start()
    try:
        async with client_of(server) as client:
            yield LogSite(server, client, path)
    finally:
        await server.stop()
