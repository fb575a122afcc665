"""Files deleted under a running server: it says so, and acknowledges nothing that a restart would miss."""

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from penstock.client import MqttClient, RequestRefused
from penstock.wire.mqtt import Version
from tests.faults.durable.homes import Home, MakeHome
from tests.faults.durable.load import Publisher, Subscriber
from tests.faults.durable.reckoning import ALL_IS_WELL, names_of, reckon
from tests.support.waiting import until

MESSAGES = 50
PATIENCE_S = 30.0


def delete_journals(database: Path) -> None:
    for file in database.glob("*.log"):
        file.unlink()


def delete_tables(database: Path) -> None:
    for file in database.glob("*.sst"):
        file.unlink()


def replace_folder(database: Path) -> None:
    shutil.move(database, database.with_name("elsewhere"))
    database.mkdir()


DELETIONS: dict[str, Callable[[Path], None]] = {
    "journals": delete_journals,
    "tables": delete_tables,
    "folder": shutil.rmtree,
    "data directory": lambda database: shutil.rmtree(database.parent),
    "replaced folder": replace_folder,
}


def status_of(home: Home, path: str) -> tuple[int, dict[str, Any]]:
    try:
        with urlopen(f"http://127.0.0.1:{home.server.port_of('http')}{path}") as response:
            return response.status, json.load(response)
    except HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.parametrize("deletion", DELETIONS)
async def test_deleted_files_are_noticed_and_nothing_is_acknowledged_any_more(
    make_home: MakeHome, deletion: str
) -> None:
    home = make_home({"http": {"port": 0}, "log": {"capture": ["#"]}})
    await home.open()
    async with MqttClient.connect(port=home.port) as client:
        for number in range(3):
            await client.publish("a", b"%d" % number, qos=1)
        assert status_of(home, "/ready")[0] == 200
        DELETIONS[deletion](home.data / "rocksdb")
        await until(lambda: status_of(home, "/ready")[0] == 503, "nobody noticed", PATIENCE_S, 0.1)
        code, health = status_of(home, "/health")
        assert (code, health["status"]) == (503, "unhealthy")
        assert health["log"]["status"] == "ended"
        with pytest.raises(RequestRefused):
            await client.publish("a", b"too late", qos=1)
        await client.publish("a", b"unacknowledged")
    assert home.logged.count("error   files of the data directory were deleted") == 1
    home.kill()


async def test_messages_of_deleted_journals_are_saved_from_memory(make_home: MakeHome) -> None:
    home = make_home()
    await home.open()
    absent = Subscriber(home, "absent", Version.V5, 1)
    await absent.subscribe()
    await absent.leave()
    publisher = Publisher(home, "publisher", Version.V5, 1, count=MESSAGES)
    await publisher.run()
    delete_journals(home.data / "rocksdb")
    await until(lambda: "were deleted" in home.logged, "nobody noticed", PATIENCE_S)
    await home.close()
    await home.open()
    reading = asyncio.create_task(absent.run())
    await absent.has(names_of([publisher]))
    await absent.settle()
    reading.cancel()
    assert reckon([publisher], absent) == ALL_IS_WELL
