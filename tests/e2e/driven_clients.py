"""MQTT clients in other languages: one program has all of a library, and is driven by lines of JSON.

The programs are in `programs`. A request has a number, a client and a verb; its response has the number too.
Messages and lost connections are reported as they come.
"""

import asyncio
import json
import subprocess
from base64 import b64decode, b64encode
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

from tests.e2e.clients import KEPT_S, TIMEOUT_S, Client, Message, Options
from tests.support.builds import go_build, npm_install

PROGRAMS = Path(__file__).parent / "programs"
MQTT_JS = "mqtt@5.16.0"


def node(program: str, *packages: str) -> list[str]:
    """Words that start one of the programs, with packages of npm."""
    modules = npm_install(*packages) / "node_modules"
    return ["env", f"NODE_PATH={modules}", "node", str(PROGRAMS / program)]


class Program:
    """A program with clients of one library, and a thread that reads its events."""

    def __init__(self, *words: str) -> None:
        self._numbers = count(1)
        self._responses: dict[int, asyncio.Future[None]] = {}
        self._clients: dict[str, DrivenClient] = {}
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def add(self, client: "DrivenClient") -> None:
        """Give a client its events; a later one with the same client id replaces it."""
        self._clients[client.options.client_id] = client

    async def call(self, client: "DrivenClient", verb: str, **arguments: Any) -> None:
        """Send a request and wait for its response."""
        number = next(self._numbers)
        request = {"number": number, "client": client.options.client_id, "verb": verb, **arguments}
        response = self._responses[number] = client.loop.create_future()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        async with asyncio.timeout(TIMEOUT_S):
            await response

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            client = self._clients[event["client"]]
            with suppress(RuntimeError):  # the loop of a client that has left may be closed
                client.loop.call_soon_threadsafe(self._on_event, client, event)

    def _on_event(self, client: "DrivenClient", event: dict[str, Any]) -> None:
        response = self._responses.pop(event.get("number", 0), None)
        if response is not None and not response.done():
            error = event.get("error")
            response.set_exception(ConnectionError(error)) if error else response.set_result(None)
        elif event.get("gone"):
            client.gone.set()
        elif message := event.get("message"):
            client.messages.put_nowait(Message(**message | {"payload": b64decode(message["payload"] or "")}))

    def stop(self) -> None:
        """End the program."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            assert self._process.wait(TIMEOUT_S) == 0
        finally:
            self._process.kill()
            self._reader.join(TIMEOUT_S)
            self._process.stdout.close()


class DrivenClient(Client):
    """Client in a program."""

    running: ClassVar[dict[type["DrivenClient"], Program]] = {}

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.loop = asyncio.get_running_loop()
        self.gone = asyncio.Event()
        kind = type(self)
        if kind not in self.running:
            self.running[kind] = Program(*self.command())
        self._program = self.running[kind]
        self._program.add(self)

    @classmethod
    def command(cls) -> list[str]:
        """Words that start the program."""
        raise NotImplementedError

    @classmethod
    def stop_all(cls) -> None:
        """End the programs of all libraries."""
        while cls.running:
            cls.running.popitem()[1].stop()

    async def connect(self, port: int) -> None:
        will = self.options.will
        await self._program.call(
            self,
            "connect",
            port=port,
            version=int(self.options.version),
            clean=not self.options.is_kept,
            expiry_s=KEPT_S if self.options.is_kept else 0,
            will=None if will is None else _encode(will),
        )

    async def subscribe(self, filter: str, qos: int = 0) -> None:
        await self._program.call(self, "subscribe", filter=filter, qos=qos)

    async def publish(self, topic: str, payload: bytes, qos: int = 0, *, retain: bool = False) -> None:
        await self._program.call(self, "publish", message=_encode(Message(topic, payload, qos, retain)))

    async def disconnect(self) -> None:
        await self._program.call(self, "disconnect")

    async def cut(self) -> None:
        await self._program.call(self, "cut")
        async with asyncio.timeout(TIMEOUT_S):
            await self.gone.wait()


class MqttJsClient(DrivenClient):
    """mqtt.js, which most programs in Node and in browsers use."""

    @classmethod
    def command(cls) -> list[str]:
        return node("mqtt.js", MQTT_JS)


class GoPahoClient(DrivenClient):
    """paho for Go: paho.mqtt.golang speaks 3.1.1, paho.golang speaks 5."""

    @classmethod
    def command(cls) -> list[str]:
        return [str(go_build(PROGRAMS, "./mqtt") / "mqtt")]


def _encode(message: Message) -> dict[str, Any]:
    return message._asdict() | {"payload": b64encode(message.payload).decode()}


LIBRARIES: list[type[Client]] = [MqttJsClient, GoPahoClient]
