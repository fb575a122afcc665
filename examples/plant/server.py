"""Server of the plant: `penstock serve` as a child process, on free ports."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from penstock.client import HttpClient

from .screen import PlantError

START_S = 60.0
STOP_S = 20.0
DOORS = {"mqtt", "http", "sidecar"}
"""Doors with a port of their own, as the server's log names them."""
POLL_S = 0.02
OUTBOX_MESSAGES = 200
"""Queue of one subscriber: short, so that one that stops reading soon loses messages."""


class PlantServer:
    """Addresses of the running server."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self.addresses = addresses
        self.mqtt_port = urlsplit(addresses["mqtt"]).port or 0
        self.http_address = addresses["http"]
        self.http_port = urlsplit(self.http_address).port or 0
        self.websocket_address = self.http_address.replace("http", "ws", 1) + "/ws"
        self.grpc_address = addresses["sidecar"].removeprefix("grpc://")

    def client(self) -> HttpClient:
        """HTTP client, to be used in a `with` block."""
        return HttpClient(self.http_address)

    def count(self, filter: str) -> int:
        """Number of messages ever published to the topics of a filter."""
        with self.client() as client:
            return sum(topic["sequence"] for topic in client.topics(filter=filter))


@contextmanager
def run_server(folder: Path) -> Iterator[PlantServer]:
    """Run a server for the duration of a block; its data, settings and log are in a folder.

    Raises:
        PlantError: it does not start.
    """
    settings = folder / "penstock.yaml"  # JSON is YAML
    settings.write_bytes(msgspec.json.format(msgspec.json.encode(settings_in(folder))))
    log = folder / "server.log"
    words = [sys.executable, "-m", "penstock", "serve", "--config", str(settings)]
    with log.open("wb") as errors:
        # In its own session: Ctrl-C ends this program, which then stops the server.
        process = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=errors, env=_environment(), start_new_session=True
        )
    try:
        yield PlantServer(_wait_for_doors(process, log))
    finally:
        _stop(process)


def settings_in(folder: Path) -> dict[str, Any]:
    """Settings of the server."""
    return {
        "data_dir": str(folder / "data"),
        "logging": {"format": "json"},
        "mqtt": {"port": 0},
        "http": {"port": 0},
        "sidecar": {"port": 0},
        "web": {"explicit_topics": False},
        "outbox": {"messages": OUTBOX_MESSAGES},
    }


def _environment() -> dict[str, str]:
    """Environment without PENSTOCK_ variables: they are for other servers."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}


def _wait_for_doors(process: "subprocess.Popen[bytes]", log: Path) -> dict[str, str]:
    """Wait until all doors are open; returns their addresses."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        has_ended = process.poll() is not None
        addresses = _open_doors(log)
        if addresses.keys() >= DOORS:
            return addresses
        if has_ended:
            break
        time.sleep(POLL_S)
    output = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    raise PlantError(f"the server did not start: {output[-1] if output else 'it logged nothing'}")


def _open_doors(log: Path) -> dict[str, str]:
    """Addresses of the doors that the server has logged as open."""
    found = {}
    for line in log.read_bytes().splitlines():
        try:
            event = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.MsgspecError:  # an incomplete line, or not an event
            continue
        if event.get("event") == "listening":
            found[str(event["door"])] = str(event["addresses"]).split()[0]
    return found


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
