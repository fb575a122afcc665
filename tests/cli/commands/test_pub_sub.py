"""`pub` and `sub` as a shell sees them: what they write, where, and how they end."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import pytest
import typer
from typer.testing import CliRunner, Result

from penstock.cli.commands.pub import pub
from penstock.cli.commands.sub import sub
from penstock.cli.output import printable
from penstock.client import MqttClient, PacketProperties, ReasonCode, Version
from penstock.wire.mqtt.encode import encode_packet
from penstock.wire.mqtt.packets import ConnAck, Disconnect, Packet, PubAck, SubAck
from tests.support.ports import free_port

GOODBYE = encode_packet(Disconnect(), Version.V5)

app = typer.Typer()
app.command()(pub)
app.command()(sub)


class Server(Protocol):
    port: int


class Shell:
    """Runs commands against one server, within this process unless they have to be interrupted."""

    def __init__(self, port: int) -> None:
        self.port = port

    def run(self, command: str, *arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, [command, *arguments, "--port", str(self.port)], input=stdin)

    def start(self, command: str, *arguments: str) -> "subprocess.Popen[bytes]":
        buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        return subprocess.Popen(
            [sys.executable, "-m", "penstock", command, *arguments, "--port", str(self.port)],
            env=buffered,  # so that what is not flushed is not seen
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


@pytest.fixture
def shell(server: Server) -> Shell:
    return Shell(server.port)


@pytest.fixture
def topic() -> str:
    return f"test/{uuid4().hex}"


@contextlib.contextmanager
def ticking(port: int, topic: str) -> Iterator[None]:
    """Someone who publishes `tick` to the topic all the time."""
    stop = threading.Event()

    async def tick() -> None:
        async with MqttClient.connect(port=port) as client:
            while not stop.is_set():
                await client.publish(topic, "tick")
                await asyncio.sleep(0.02)

    thread = threading.Thread(target=asyncio.run, args=(tick(),))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def answering(*answers: Packet) -> Iterator[Shell]:
    """A server that gives these answers, one for each thing it hears."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(30)
            for answer in answers:
                connection.recv(1024)
                connection.sendall(encode_packet(answer, Version.V5))
            while (heard := connection.recv(65_536)) and not heard.endswith(GOODBYE):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield Shell(listener.getsockname()[1])
        thread.join()


def retained(shell: Shell, topic: str) -> dict[str, Any]:
    """The retained message of a topic, by the means under test; waits until there is one."""
    result = shell.run("sub", topic, "-n", "1", "--timeout", "10", "-o", "json")
    assert result.exit_code == 0, result.output
    message: dict[str, Any] = json.loads(result.stdout)
    return message


# pub


@pytest.mark.parametrize("version", ["3", "5"])
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_a_message_from_the_command_line_reaches_the_server(
    shell: Shell, topic: str, version: str, qos: str
) -> None:
    result = shell.run("pub", topic, "hällo", "-r", "-q", qos, "--mqtt-version", version)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert retained(shell, topic)["payload"] == "hällo"


def test_a_message_from_a_file_is_published_byte_for_byte(shell: Shell, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "payload"
    file.write_bytes(b"\xff\x00\n")
    assert shell.run("pub", topic, "--file", str(file), "-r", "-q", "1").exit_code == 0
    assert retained(shell, topic)["payload"] == {"$bytes": "/wAK"}


def test_a_message_from_standard_input_is_published_whole(shell: Shell, topic: str) -> None:
    result = shell.run("pub", topic, "--file", "-", "-r", "-q", "1", stdin="one\ntwo\n")
    assert result.exit_code == 0
    assert retained(shell, topic)["payload"] == "one\ntwo\n"


def test_an_empty_retained_message_deletes(shell: Shell, topic: str) -> None:
    shell.run("pub", topic, "x", "-r", "-q", "1")
    assert shell.run("pub", topic, "", "-r", "-q", "1").exit_code == 0
    result = shell.run("sub", topic, "--timeout", "0.3")
    assert (result.exit_code, result.stdout) == (0, "")


def test_lines_are_published_while_standard_input_is_still_open(shell: Shell, topic: str) -> None:
    with shell.start("pub", topic, "--stdin-lines", "-r", "-q", "1", "-o", "json") as process:
        assert process.stdin is not None
        process.stdin.write(b"first\r\nlast\n")
        process.stdin.flush()
        while retained(shell, topic)["payload"] != "last":
            assert process.poll() is None
        process.stdin.write(b"without end of line")
        out, err = process.communicate(timeout=20)
    assert err == b""
    assert json.loads(out)["messages"] == 3
    assert retained(shell, topic)["payload"] == "without end of line"


def test_the_receipt_says_what_was_sent_and_how_it_was_taken(shell: Shell, topic: str) -> None:
    result = shell.run("pub", topic, "abc", "-n", "50", "-q", "1", "-r", "-o", "json", "--timings")
    receipt = json.loads(result.stdout)
    assert receipt["seconds"] > 0
    assert 0 < receipt["acknowledged_ms"]["median"] <= receipt["acknowledged_ms"]["longest"]
    assert sum(receipt["reasons"].values()) == 50
    del receipt["seconds"], receipt["acknowledged_ms"], receipt["reasons"]
    assert receipt == {"topic": topic, "qos": 1, "retain": True, "messages": 50, "bytes": 150}


def test_timings_of_pub_are_for_people_too(shell: Shell, topic: str) -> None:
    result = shell.run("pub", topic, "abc", "-n", "3", "-q", "2", "--timings")
    assert result.stdout == ""
    assert re.search(r"3 messages in .* s, .* per second; acknowledged after: median .* ms", result.stderr)
    assert "acknowledged" not in shell.run("pub", topic, "abc", "-q", "0", "--timings").stderr


def test_expiry_and_content_type_travel_with_the_message(shell: Shell, topic: str) -> None:
    shell.run("pub", topic, "{}", "-r", "-q", "1", "--expiry", "60", "--content-type", "application/json")
    properties = retained(shell, topic)["properties"]
    assert properties["content_type"] == "application/json"
    assert 55 <= properties["message_expiry"] <= 60


def test_pub_tells_when_nobody_listens() -> None:
    with answering(ConnAck(), PubAck(1, ReasonCode.NO_MATCHING_SUBSCRIBERS)) as shell:
        result = shell.run("pub", "a", "x", "-q", "1")
    assert result.exit_code == 0
    assert result.stderr == "1 of 1 messages: no subscribers.\n"


def test_a_message_without_subscribers_is_no_warning_unless_a_qos_was_asked_for() -> None:
    with answering(ConnAck(), PubAck(1, ReasonCode.NO_MATCHING_SUBSCRIBERS)) as shell:
        result = shell.run("pub", "a", "x")
    assert (result.exit_code, result.stderr) == (0, "")


def test_pub_reports_by_default_that_a_message_was_refused() -> None:
    with answering(ConnAck(), PubAck(1, ReasonCode.NOT_AUTHORIZED)) as shell:
        result = shell.run("pub", "secret/topic", "x")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: the server refused 'secret/topic': not authorized (0x87). ")


def test_pub_uses_qos_0_by_default_where_the_server_has_no_more() -> None:
    with answering(ConnAck(properties=PacketProperties(maximum_qos=0))) as shell:
        result = shell.run("pub", "a", "x", "-o", "json")
    assert json.loads(result.stdout)["qos"] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("a",),
        ("a", "x", "--stdin-lines"),
        ("a", "--file", "/does/not/exist"),
        ("a", "x", "--expiry", "1", "--mqtt-version", "3"),
        ("a", "x", "--qos", "3"),
    ],
)
def test_wrong_usage_of_pub_ends_with_2_before_connecting(arguments: tuple[str, ...]) -> None:
    assert Shell(1).run("pub", *arguments).exit_code == 2


# sub


@pytest.mark.parametrize("version", ["3", "5"])
def test_sub_writes_payloads_one_per_line(shell: Shell, topic: str, version: str) -> None:
    with ticking(shell.port, topic):
        result = shell.run("sub", topic, "-n", "3", "--mqtt-version", version)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "tick\n" * 3, "")


def test_sub_shows_topics_when_asked(shell: Shell, topic: str) -> None:
    with ticking(shell.port, f"{topic}/sub"):
        result = shell.run("sub", "unused/filter", f"{topic}/+", "-n", "1", "-v")
    assert result.stdout == f"{topic}/sub tick\n"


def test_json_has_one_object_per_message_with_everything_known(shell: Shell, topic: str) -> None:
    shell.run("pub", topic, "kept", "-r", "-q", "1", "--content-type", "text/plain")
    result = shell.run("sub", topic, "-n", "1", "-q", "1", "-o", "json")
    message = json.loads(result.stdout)
    received_at = datetime.fromisoformat(message.pop("received_at"))
    published_at = datetime.fromisoformat(message.pop("timestamp"))
    assert timedelta(0) <= datetime.now(UTC) - received_at < timedelta(seconds=30)
    assert published_at <= received_at
    assert message.pop("cursor")
    assert message == {
        "topic": topic,
        "payload": "kept",
        "content_type": "text/plain",
        "qos": 1,
        "retain": True,
        "sequence": 1,
        "properties": {"content_type": "text/plain"},
    }


def test_a_message_of_3_1_1_has_no_sequence_and_the_time_it_came(shell: Shell, topic: str) -> None:
    shell.run("pub", topic, "kept", "-r", "-q", "1")
    message = json.loads(shell.run("sub", topic, "-n", "1", "-o", "json", "--mqtt-version", "3").stdout)
    assert (message["sequence"], message["cursor"], message["content_type"]) == (None, None, None)
    assert message["timestamp"] == message["received_at"]


def test_user_properties_stay_and_the_servers_marks_do_not_show_among_them(shell: Shell, topic: str) -> None:
    async def publish() -> None:
        async with MqttClient.connect(port=shell.port) as client:
            properties = PacketProperties(user=(("colour", "red"),))
            await client.publish(topic, "x", qos=1, retain=True, properties=properties)

    asyncio.run(publish())
    assert retained(shell, topic)["properties"] == {"user": [["colour", "red"]]}


@pytest.mark.parametrize("version", ["3", "5"])
def test_retained_messages_are_left_out_when_not_wanted(shell: Shell, topic: str, version: str) -> None:
    shell.run("pub", topic, "kept", "-r", "-q", "1")
    arguments = ("sub", topic, "--mqtt-version", version)
    assert shell.run(*arguments, "--retained", "-n", "1", "--timeout", "10").stdout == "kept\n"
    assert shell.run(*arguments, "--no-retained", "--timeout", "0.3").stdout == ""


def test_too_few_messages_in_time_are_an_error(shell: Shell, topic: str) -> None:
    shell.run("pub", topic, "kept", "-r", "-q", "1")
    result = shell.run("sub", topic, "-n", "2", "--timeout", "0.7")
    assert result.exit_code == 1
    assert result.stdout == "kept\n"
    assert result.stderr == "error: 1 of 2 messages came within 0.7 s\n"


def test_a_session_gets_what_came_while_it_was_away(shell: Shell, topic: str) -> None:
    words = (topic, "--qos", "1", "--client-id", f"away-{topic[-8:]}", "--session-expiry", "60")
    first = shell.run("sub", *words, "--timeout", "0.2")
    assert (first.exit_code, first.stdout) == (0, "")
    shell.run("pub", topic, "missed", "--qos", "1")
    back = shell.run("sub", *words, "--count", "1", "--timeout", "10")
    assert (back.exit_code, back.stdout) == (0, "missed\n")


@pytest.mark.parametrize("words", [(), ("--client-id", "away", "--mqtt-version", "3")])
def test_a_session_without_a_name_or_in_3_1_1_is_wrong_usage(shell: Shell, words: tuple[str, ...]) -> None:
    assert shell.run("sub", "a", "--session-expiry", "60", *words).exit_code == 2


def test_timings_of_sub_tell_the_rate_and_the_sum(shell: Shell, topic: str) -> None:
    with ticking(shell.port, topic):
        result = shell.run("sub", topic, "--timeout", "1.2", "--timings")
    lines = result.stderr.splitlines()
    count = len(result.stdout.splitlines())
    assert len(lines) == 2
    assert re.fullmatch(r"\d+ per second", lines[0])
    assert re.fullmatch(rf"{count} messages, {4 * count} bytes in [\d.]+ s, \d+ per second", lines[1])


def test_ctrl_c_ends_sub_cleanly_with_its_sum(shell: Shell, topic: str) -> None:
    with ticking(shell.port, topic), shell.start("sub", topic, "--timings") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"tick\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert b"Traceback" not in err
    assert re.search(rb"\d+ messages, \d+ bytes", err)


def test_ctrl_c_ends_pub_that_waits_for_standard_input(shell: Shell, topic: str) -> None:
    with shell.start("pub", topic, "--stdin-lines", "-r", "-q", "1") as process:
        assert process.stdin is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        retained(shell, topic)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_sub_ends_quietly_when_its_reader_does(shell: Shell, topic: str) -> None:
    with ticking(shell.port, topic), shell.start("sub", topic) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_control_characters_do_not_reach_a_terminal() -> None:
    assert printable("é\tok\n".encode()) == "é\tok\n".encode()
    assert printable(b"\x1b[2J\x00\xff") == b"\\x1b[2J\\x00\\xff"


# Failures


@pytest.mark.parametrize("command", [("pub", "a", "x"), ("sub", "a")])
def test_no_server_is_one_line_that_says_what_to_try(command: tuple[str, ...]) -> None:
    port = free_port()
    result = Shell(port).run(*command)
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith(f"error: no connection to 127.0.0.1:{port}")
    assert "`penstock serve`" in result.stderr


@pytest.mark.parametrize("command", ["pub", "sub"])
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--user", "a", "--password", "b", "--password-file", "c"], "give one of"),
        (["--password-file", "c"], "needs --user"),
    ],
)
def test_password_flags_that_do_not_go_together_are_refused(
    shell: Shell, command: str, words: list[str], told: str
) -> None:
    result = shell.run(command, "a", *(["x"] if command == "pub" else []), *words)
    assert result.exit_code == 2
    assert told in result.stderr


def test_a_password_file_that_is_not_there_is_one_line(shell: Shell, tmp_path: Path) -> None:
    result = shell.run("sub", "a", "--user", "ann", "--password-file", str(tmp_path / "none"))
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert result.stderr.startswith("error: --password-file ")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (ReasonCode.BAD_USER_NAME_OR_PASSWORD, "does not let user 'ann' in: bad user name or password"),
        (ReasonCode.NOT_AUTHORIZED, "does not let user 'ann' in: not authorized"),
        (ReasonCode.SERVER_BUSY, "refused the connection: server busy"),
    ],
)
def test_a_refused_connection_is_one_line_with_the_reason(reason: ReasonCode, words: str) -> None:
    with answering(ConnAck(reason=reason)) as shell:
        result = shell.run("sub", "a", "--user", "ann", "--password", "wrong")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert words in result.stderr


@pytest.mark.parametrize("lines", [1, 50])
def test_a_refused_publish_is_one_line_with_the_reason(lines: int) -> None:
    with answering(ConnAck(), PubAck(1, ReasonCode.NOT_AUTHORIZED)) as shell:
        result = shell.run("pub", "secret/topic", "x", "-q", "1", "-n", str(lines))
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == (
        "error: the server refused 'secret/topic': not authorized (0x87). "
        "a client without --user has no right to do this: see the server's access list.\n"
    )


@pytest.mark.parametrize("reason", [ReasonCode.SERVER_BUSY, ReasonCode.SERVER_UNAVAILABLE])
def test_a_server_that_is_about_to_stop_is_told(reason: ReasonCode) -> None:
    with answering(ConnAck(reason=reason)) as shell:
        result = shell.run("pub", "a", "x")
    assert result.exit_code == 1
    assert "It is about to stop, or has too much to do: try again in a while." in result.stderr


def test_a_refused_subscription_names_its_filter() -> None:
    with answering(ConnAck(), SubAck(1, (0, ReasonCode.NOT_AUTHORIZED))) as shell:
        result = shell.run("sub", "open/#", "secret/#")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: the server refused 'secret/#': not authorized (0x87). ")


def test_a_topic_nobody_can_publish_to_is_an_error(shell: Shell) -> None:
    result = shell.run("pub", "a/#", "x")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: a topic must not contain +, #")
