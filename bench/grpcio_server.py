"""Penstock's gRPC services on grpcio in place of our own HTTP/2, to be measured beside it.

    taskset -c 0 python bench/grpcio_server.py --port 5673
    penstock bench --scenario grpc_unary,grpc_fanout --peers none --target grpcio=grpc://127.0.0.1:5673

Everything else is the same: the broker, the methods, the loop. It keeps nothing on disk.
"""

import argparse
import asyncio
import signal

import uvloop

from penstock.app import Server
from penstock.config import Settings
from penstock.core.clock import SystemClock
from penstock.doors.http.settings import HttpSettings
from penstock.doors.mqtt.settings import MqttSettings
from penstock.doors.sidecar.grpcio_transport import GrpcioDoor
from penstock.doors.sidecar.offer import load
from penstock.doors.sidecar.settings import SidecarSettings


async def serve(port: int) -> None:
    """Run until somebody says stop."""
    server = make_server(SidecarSettings(port=port))
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    await server.start()
    print(*server.doors[0].addresses(), flush=True)
    await stopping.wait()
    await server.stop()


def make_server(settings: SidecarSettings) -> Server:
    """A server whose only door is grpcio's."""
    closed = SidecarSettings(port=None)
    server = Server(Settings(mqtt=MqttSettings(port=None), http=HttpSettings(port=()), sidecar=closed))
    clock = SystemClock()
    server.doors = [GrpcioDoor(settings, server.broker, clock, lambda: load(settings, server.broker, clock))]
    return server


def main() -> None:
    """Serve on a loopback port."""
    parser = argparse.ArgumentParser(description="Serve gRPC over grpcio on a loopback port.")
    parser.add_argument("--port", type=int, default=5673)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(options.port))


if __name__ == "__main__":
    main()
