"""Meter: processes that listen on a port, and their children."""

import subprocess
import sys

from bench.load.meter import Meter
from bench.peers.target import accepts, free_port
from tests.support.waiting import until_sync

LISTENER = """
import socket, subprocess, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.3: pass\\ntime.sleep(60)"])
"""


TWO_LISTENERS = """
import os, socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while time.process_time() < 0.3: pass
ready, done = os.pipe()
if os.fork():
    os.read(ready, 1)
    print("ready", flush=True)
else:
    while time.process_time() < 0.5: pass
    os.write(done, b"x")
time.sleep(60)
"""


def test_meter_counts_a_listener_once_that_another_one_has_started() -> None:
    port = free_port()
    command = [sys.executable, "-c", TWO_LISTENERS, str(port)]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE) as listener:
        try:
            assert listener.stdout is not None and listener.stdout.readline() == b"ready\n"
            assert 0.75 <= Meter(port).read().cpu_s < 1.2
        finally:
            subprocess.run(["kill", "--", f"-{listener.pid}"], check=True)


def test_meter_counts_what_the_listener_has_started() -> None:
    port = free_port()
    with subprocess.Popen([sys.executable, "-c", LISTENER, str(port)], start_new_session=True) as listener:
        try:
            until_sync(
                lambda: accepts("127.0.0.1", port), "the port does not accept connections", timeout_s=120
            )
            meter = Meter(port)
            until_sync(
                lambda: meter.read().cpu_s >= 0.3, "too little CPU time was counted"
            )  # of which the listener itself has taken a tenth
        finally:
            subprocess.run(["kill", "--", f"-{listener.pid}"], check=True)
