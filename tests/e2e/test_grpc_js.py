"""NexusD's service with gRPC for JavaScript: a program of a few lines that uses the stock packages."""

import json
import subprocess
from uuid import uuid4

from penstock.wire import sidecar
from tests.e2e.driven_clients import node
from tests.support.servers import RunningServer

PACKAGES = ("@grpc/grpc-js@1.14.1", "@grpc/proto-loader@0.8.0")


def test_a_program_publishes_subscribes_pauses_and_resumes(server: RunningServer) -> None:
    proto = f"{sidecar.__path__[0]}/nexusd.proto"
    words = node("sidecar.js", *PACKAGES)
    words += [f"127.0.0.1:{server.port_of('grpc')}", proto, f"grpc-js/{uuid4().hex}"]
    printed = subprocess.run(words, stdout=subprocess.PIPE, timeout=60, check=True).stdout
    assert json.loads(printed) == {
        "retained": ["retained_message", 1, "kept"],
        "subscribers": 1,
        "live": ["message", 2, "live"],
        "paused": True,
        "gap": False,
        "replayed": ["replay_message", 3, "missed"],
        "topics": True,
        "refused": 3,
    }
