"""A real Prometheus that watches a real server, and the load that it sees."""

import asyncio
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import yaml

from penstock.client import MqttClient, PacketProperties
from tests.deploy.files import DEPLOY, read, read_yaml
from tests.e2e.doors import Doors
from tests.support.servers import RunningServer

HOST = "127.0.0.1"
PATIENCE_S = 30.0
LISTENING = re.compile(r'msg="Listening on" address=127\.0\.0\.1:(\d+)')
LARGE = bytes(64 << 10)
SCRAPES = 3
"""As many as a rate needs to be of more than one interval."""
OF_LOAD = {"PenstockSlowSubscribers", "PenstockOutboxElevated", "PenstockDropsHigh"}
"""The alerts about a subscriber that does not read."""
CONNECT = b"\x10\x12\x00\x04MQTT\x04\x02\x00\x3c\x00\x06asleep"
SUBSCRIBE = b"\x82\x0c\x00\x01\x00\x07flood/#\x00"
"""By hand, because a client of ours would read what comes."""


class Prometheus(NamedTuple):
    """Where it answers."""

    address: str

    def ask(self, path: str, **parameters: Any) -> Any:
        """The data of an answer of its HTTP API."""
        answer = httpx.get(f"{self.address}/api/v1/{path}", params=parameters, timeout=PATIENCE_S)
        content = answer.json()
        assert content["status"] == "success", content
        return content["data"]

    def query(self, expression: str, at: float | None = None) -> list[dict[str, Any]]:
        """What an expression is, now or at a time."""
        data = self.ask("query", query=expression, **({} if at is None else {"time": at}))
        assert data["resultType"] == "vector", data
        return list(data["result"])


@contextmanager
def watching(server: RunningServer, folder: Path) -> Iterator[Prometheus]:
    """Run Prometheus with the configuration in deploy/, on this server, and in a hurry."""
    settings = read_yaml(DEPLOY / "prometheus" / "prometheus.yml")
    settings["global"] = {"scrape_interval": "500ms", "evaluation_interval": "500ms"}
    settings["scrape_configs"][0]["static_configs"] = [{"targets": [f"{HOST}:{server.port_of('http')}"]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    (folder / "alerts.yml").write_text(read(DEPLOY / "prometheus" / "alerts.yml"), encoding="utf-8")
    words = [
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address={HOST}:0",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        yield Prometheus(f"http://{HOST}:{_port_in(folder / 'prometheus.log', process)}")
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def _port_in(log: Path, process: "subprocess.Popen[bytes]") -> str:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        if found := LISTENING.search(read(log)):
            return found[1]
        time.sleep(0.05)
    raise RuntimeError(f"Prometheus does not listen: {read(log)}")


async def work_until_seen(server: RunningServer, prometheus: Prometheus) -> None:
    """Use every door, with somebody who is away and somebody who does not read, until it was seen often."""
    await _leave_a_session(server)
    with socket.create_connection((HOST, server.port), timeout=PATIENCE_S) as asleep:
        asleep.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        asleep.sendall(CONNECT + SUBSCRIBE)
        assert asleep.recv(4) == b"\x20\x02\x00\x00"
        async with Doors(server) as doors:
            await doors.mqtt.subscribe("load/#")
            await doors.mqtt.publish("load/a", b"0", qos=1)  # /ws publishes to topics that are there
            following = [await doors.follow_socket("load/#"), await doors.follow_sidecar("load/#")]
            deadline = time.monotonic() + PATIENCE_S
            while not await asyncio.to_thread(_has_seen, prometheus) and time.monotonic() < deadline:
                await doors.publish_everywhere("load/a")
                for each in following:
                    await each.take(1)
                await asyncio.gather(*(doors.mqtt.publish("flood/a", LARGE, qos=1) for _ in range(50)))
                await doors.http.get("/api/v1/streams/receive", params={"streamId": "load/a"})
                await asyncio.sleep(0.1)


async def _leave_a_session(server: RunningServer) -> None:
    stays = PacketProperties(session_expiry=600)
    async with MqttClient.connect(
        port=server.port, client_id="absent", clean_start=False, properties=stays
    ) as client:
        await client.subscribe("load/#", qos=1)


def _has_seen(prometheus: Prometheus) -> bool:
    """Whether something had been dropped in enough answers of the server, and alerts were made of that."""
    dropped = 'count_over_time(penstock_messages_dropped_total{job="penstock"}[5m])'
    scrapes = max((int(each["value"][1]) for each in prometheus.query(dropped)), default=0)
    return scrapes >= SCRAPES and alerts_of(prometheus) >= OF_LOAD


def alerts_of(prometheus: Prometheus, at: float | None = None) -> set[str]:
    """The alerts that are about to be told."""
    return {each["metric"]["alertname"] for each in prometheus.query("ALERTS", at)}
