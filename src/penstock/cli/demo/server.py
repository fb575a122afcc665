"""The server of the demonstration: `penstock serve` in a process of its own, on free ports."""

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
from penstock.errors import InvalidConfig

START_S = 60.0
STOP_S = 20.0
DOORS = {"mqtt", "http", "sidecar"}
"""Those with a port of their own, by the names that the server's log has for them."""
LOOK_EVERY_S = 0.02
OUTBOX_MESSAGES = 200
"""How much may wait for one subscriber: little, so that one who does not read soon loses something."""


class DemoServer:
    """A server that runs, and where it is."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self.addresses = addresses
        self.mqtt_port = urlsplit(addresses["mqtt"]).port or 0
        self.http_address = addresses["http"]
        self.http_port = urlsplit(self.http_address).port or 0
        self.websocket_address = self.http_address.replace("http", "ws", 1) + "/ws"
        self.grpc_address = addresses["sidecar"].removeprefix("grpc://")

    def client(self) -> HttpClient:
        """A client over HTTP, to be entered with `with`."""
        return HttpClient(self.http_address)

    def count(self, filter: str) -> int:
        """How many messages were ever published to the topics of a filter."""
        with self.client() as client:
            return sum(topic["sequence"] for topic in client.topics(filter=filter))


@contextmanager
def serving(folder: Path) -> Iterator[DemoServer]:
    """A server whose data, settings and log are in a folder, for as long as this lasts.

    Raises:
        InvalidConfig: it does not start.
    """
    settings = folder / "penstock.yaml"  # JSON is YAML
    settings.write_bytes(msgspec.json.format(msgspec.json.encode(settings_in(folder))))
    log = folder / "server.log"
    words = [sys.executable, "-m", "penstock", "serve", "--config", str(settings)]
    with log.open("wb") as errors:
        # A session of its own: Ctrl-C is for the demonstration, which then stops the server.
        process = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=errors, env=_environment(), start_new_session=True
        )
    try:
        yield DemoServer(_await(process, log))
    finally:
        _stop(process)


def settings_in(folder: Path) -> dict[str, Any]:
    """The settings of the demonstration's server."""
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
    """The environment without settings: they would be for another server."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}


def _await(process: "subprocess.Popen[bytes]", log: Path) -> dict[str, str]:
    """Wait until all doors are open, and tell where they are."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        is_over = process.poll() is not None
        addresses = _listening(log)
        if addresses.keys() >= DOORS:
            return addresses
        if is_over:
            break
        time.sleep(LOOK_EVERY_S)
    said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    raise InvalidConfig(f"the server of the demonstration does not start: {said[-1] if said else 'no word'}")


def _listening(log: Path) -> dict[str, str]:
    """The doors that the server's log says are open."""
    found = {}
    for line in log.read_bytes().splitlines():
        try:
            event = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.MsgspecError:  # half a line, or no event
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
