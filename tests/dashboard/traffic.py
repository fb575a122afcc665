"""Load on a server: publishers and subscribers at every door, one of them slow."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from threading import Event, Thread
from uuid import uuid4

import httpx
from websockets.asyncio.client import connect as connect_websocket

from penstock.client import MqttClient, connect
from tests.support.servers import RunningServer

SLOW_CLIENT = "snail"
SLOW_TOPIC = "plant/camera"
SENSORS = tuple(f"plant/line-{line}/{what}" for line in (1, 2, 3) for what in ("pressure", "temperature"))
STREAM = "jobs"
PICTURE = bytes(32 * 1024)
"""Large enough to fill what the operating system has room for in a second or two."""


class Traffic:
    """Load at all doors of a server, until it is stopped."""

    def __init__(self, server: RunningServer, pause_s: float = 0.05) -> None:
        self.mqtt_port = server.port_of("mqtt")
        self.http = f"http://127.0.0.1:{server.port_of('http')}"
        self.grpc_port = server.port_of("grpc")
        self._pause_s = pause_s
        self._stopping = Event()
        self._has_started = Event()
        self._thread = Thread(target=lambda: asyncio.run(self._run()), name="traffic")

    def __enter__(self) -> "Traffic":
        self._thread.start()
        assert self._has_started.wait(30), "the load does not begin"
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    async def _run(self) -> None:
        """Connect all, then publish; subscribers disconnect last, so that everything arrives."""
        listening = [
            asyncio.create_task(listen())
            for listen in (self._mqtt_reader, self._grpc_reader, self._web_reader)
        ]
        async with MqttClient.connect(
            port=self.mqtt_port, client_id=SLOW_CLIENT, messages_limit=1, keep_alive=0
        ) as snail:
            await snail.subscribe(SLOW_TOPIC)
            await asyncio.sleep(0.3)
            self._has_started.set()
            async with asyncio.TaskGroup() as sending:
                for send in (self._mqtt_writer, self._grpc_writer, self._web_writer, self._streams):
                    sending.create_task(send())
            await asyncio.sleep(0.5)
        for task in listening:
            task.cancel()
        await asyncio.gather(*listening, return_exceptions=True)

    async def _repeat(self, work: Callable[[], Awaitable[object]]) -> None:
        while not self._stopping.is_set():
            await work()
            await asyncio.sleep(self._pause_s)

    async def _mqtt_writer(self) -> None:
        async with MqttClient.connect(port=self.mqtt_port, client_id="line-controller") as client:

            async def work() -> None:
                for number, topic in enumerate(SENSORS):
                    await client.publish(topic, str(20 + number), qos=number % 2, retain=True)
                for _ in range(8):
                    await client.publish(SLOW_TOPIC, PICTURE)

            await self._repeat(work)

    async def _mqtt_reader(self) -> None:
        async with MqttClient.connect(port=self.mqtt_port, client_id="control-room") as client:
            await client.subscribe("plant/+/pressure", "plant/+/temperature")
            async for _ in client.messages:
                pass

    async def _grpc_writer(self) -> None:
        async with connect(f"127.0.0.1:{self.grpc_port}", client_id="planner") as client:
            await self._repeat(lambda: client.publish_many(("plan/orders", str(n)) for n in range(20)))

    async def _grpc_reader(self) -> None:
        async with (
            connect(f"127.0.0.1:{self.grpc_port}", client_id="recorder") as client,
            client.subscribe("plant/+/pressure", "plan/#") as messages,
        ):
            async for _ in messages:
                pass

    async def _web_writer(self) -> None:
        async with httpx.AsyncClient(base_url=self.http, trust_env=False, timeout=30) as client:
            batch = [{"topic": "office/mood", "data": number} for number in range(10)]
            await self._repeat(lambda: client.post("/api/v1/publish", json=batch))

    async def _web_reader(self) -> None:
        address = self.http.replace("http", "ws", 1) + "/ws"
        async with connect_websocket(address, proxy=None) as socket:
            await socket.send(json.dumps({"type": "subscribe", "filter": "office/#"}))
            async for _ in socket:
                pass

    async def _streams(self) -> None:
        async with httpx.AsyncClient(base_url=self.http, trust_env=False, timeout=30) as client:

            async def work() -> None:
                job = {"streamId": STREAM, "messageUuid": str(uuid4()), "message": {"page": 17}}
                await client.post("/api/v1/streams/send", json=job)
                await client.get(
                    "/api/v1/streams/receive", params={"streamId": STREAM, "timeoutSeconds": "5"}
                )

            await self._repeat(work)
