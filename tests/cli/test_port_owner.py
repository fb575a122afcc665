"""A port that is in use: whose it is, and what to do."""

import os
import socket
from pathlib import Path

from penstock.cli.port_owner import explain_port_in_use, find_owner

FLAGS = {"mqtt.port": "--mqtt-port"}


def test_the_owner_of_a_port_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        name = Path("/proc/self/comm").read_text(encoding="utf-8").strip()
        owner = f"process {os.getpid()} ({name})"
        assert find_owner(port) == owner
        text = f"mqtt.port: cannot listen on 127.0.0.1:{port}: Address already in use"
        assert explain_port_in_use(text, FLAGS) == (
            f"{text} by {owner}. Stop that, or choose another port: "
            "--mqtt-port, or the setting mqtt.port, takes one; 0 takes a free one."
        )
    assert find_owner(port) is None


def test_an_owner_that_is_not_known_is_left_out(tmp_path: Path) -> None:
    assert find_owner(1883, tmp_path) is None
    text = "http.admin_port: cannot listen on [::1]:1: Address already in use"
    assert explain_port_in_use(text, FLAGS) == (
        f"{text}. Stop that, or choose another port: "
        "the setting http.admin_port takes one; 0 takes a free one."
    )


def test_other_errors_stay_as_they_are() -> None:
    text = "mqtt.port: cannot listen on 127.0.0.1:80: Permission denied"
    assert explain_port_in_use(text, FLAGS) == text
