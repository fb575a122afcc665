"""A server in this process, with everything switched on, that is asked what it offers."""

import asyncio
from functools import cache
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import Struct
from prometheus_client.metrics_core import Metric
from structlog.testing import capture_logs

from penstock.app import Server
from penstock.client import HttpClient
from penstock.config import load
from penstock.telemetry.families import take_snapshot
from penstock.telemetry.prometheus import families

FREE_PORTS = {"mqtt.port": "0", "http.port": "0", "sidecar.port": "0"}


class Offer(Struct, frozen=True):
    """What a server with a data directory offers."""

    metrics: list[Metric]
    openapi: dict[str, Any]


@cache
def offer() -> Offer:
    """Start a server, ask it, and stop it."""
    with TemporaryDirectory() as folder, capture_logs():
        return asyncio.run(_ask(folder))


async def _ask(folder: str) -> Offer:
    server = Server(load(flags={**FREE_PORTS, "data_dir": folder}).settings)
    await server.start()
    try:
        [address] = server.http.addresses()
        metrics = list(families(await take_snapshot(server._metrics)))
        return Offer(metrics, await asyncio.to_thread(_description, address))
    finally:
        await server.stop()


def _description(address: str) -> dict[str, Any]:
    with HttpClient(address) as client:
        return client.get("/openapi.json")
