"""`penstock bench` against real servers, and against servers that lose, duplicate and reorder messages."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.commands.bench import LEAST_SIZE, app
from penstock.cli.commands.bench.connections import STAMP
from penstock.client import MqttClient
from tests.support.ports import free_port
from tests.support.servers import RunningServer, StartServer

FEW = ("--messages", "2000")


@pytest.fixture
def topic() -> str:
    """A topic that no other test uses."""
    return f"bench/{uuid4().hex}"


def run(*words: str, port: int) -> Result:
    return CliRunner().invoke(app, [*words, "--port", str(port)])


def measure(*words: str, port: int) -> dict[str, Any]:
    """Result of a test that succeeds."""
    done = run(*words, "-o", "json", port=port)
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout))


def start(*words: str, port: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", "bench", *words, "--port", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# Real servers


@pytest.mark.parametrize("version", ["3", "5"])
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_every_message_is_published_and_delivered_once(
    server: RunningServer, topic: str, qos: str, version: str
) -> None:
    found = measure("pubsub", topic, *FEW, "-q", qos, "--mqtt-version", version, port=server.port)
    assert found["published"]["messages"] == found["delivered"]["messages"] == 2_000
    assert (found["lost"], found["duplicates"], found["out_of_order"]) == (0, 0, 0)
    assert found["published"]["messages_per_s"] > 0
    assert found["delivered"]["bytes_per_s"] == pytest.approx(found["delivered"]["messages_per_s"] * 128)
    latency = found["latency"]
    assert 0 <= latency["p50_ms"] <= latency["p99_ms"] <= latency["p999_ms"] <= latency["max_ms"]


def test_many_publishers_subscribers_and_topics(server: RunningServer, topic: str) -> None:
    crowd = ("--publishers", "3", "--subscribers", "4", "--topics", "7")
    found = measure("pubsub", topic, *FEW, *crowd, "-q", "1", port=server.port)
    assert found["published"]["messages"] == 2_000
    assert found["delivered"]["messages"] == 8_000
    assert (found["lost"], found["duplicates"], found["out_of_order"]) == (0, 0, 0)


@pytest.mark.parametrize("size", [LEAST_SIZE, 200, 70_000])
def test_payloads_have_the_given_size(server: RunningServer, topic: str, size: int) -> None:
    found = measure("pubsub", topic, "-n", "20", "--size", str(size), port=server.port)
    assert found["delivered"]["bytes_per_s"] == pytest.approx(found["delivered"]["messages_per_s"] * size)


def test_least_size_is_that_of_the_stamp() -> None:
    assert STAMP.size == LEAST_SIZE


def test_rate_is_kept(server: RunningServer, topic: str) -> None:
    found = measure("pubsub", topic, "-n", "100", "--rate", "200", "--publishers", "2", port=server.port)
    assert found["published"]["seconds"] >= 0.45
    assert found["lost"] == 0


def test_pub_measures_acknowledgements(server: RunningServer, topic: str) -> None:
    found = measure("pub", topic, *FEW, "-q", "1", port=server.port)
    assert found["published"]["messages"] == 2_000
    assert found["delivered"] is found["duplicates"] is None
    assert found["lost"] == 0
    assert found["latency"]["p50_ms"] > 0


def test_pub_at_qos_0_has_no_latency(server: RunningServer, topic: str) -> None:
    found = measure("pub", topic, *FEW, port=server.port)
    assert found["published"]["messages"] == 2_000
    assert found["latency"] is None


def test_sub_counts_what_another_process_publishes(server: RunningServer, topic: str) -> None:
    with start("sub", topic, *FEW, "--subscribers", "2", "-o", "json", port=server.port) as receiving:
        while not receiving.poll() and not _has_subscriber(server, topic):
            pass
        measure("pub", topic, *FEW, "-q", "1", port=server.port)
        printed, complaints = receiving.communicate(timeout=60)
    assert (receiving.returncode, complaints) == (0, "")
    found = json.loads(printed)
    assert found["delivered"]["messages"] == 4_000
    assert (found["published"], found["lost"]) == (None, 0)


def _has_subscriber(server: RunningServer, topic: str) -> bool:
    """A message without a stamp tells whether the test has subscribed, and is not counted by it."""

    async def publish() -> bool:
        async with MqttClient.connect(port=server.port) as client:
            return await client.publish(topic, b"not a stamp", qos=1) == 0

    return asyncio.run(publish())


def test_text_has_a_line_for_each_figure(server: RunningServer, topic: str) -> None:
    done = run("pubsub", topic, "-n", "100", port=server.port)
    assert done.exit_code == 0
    names = [line.partition(": ")[0] for line in done.stdout.splitlines()]
    assert names == ["published", "delivered", "latency", "lost", "duplicates", "out of order"]
    assert done.stdout.startswith("published: 100 messages in ")


def test_websocket_and_client_id(http_server: RunningServer, topic: str) -> None:
    port = http_server.port_of("http")
    found = measure("pubsub", topic, "-n", "300", "--websocket", "--client-id", "mine", port=port)
    assert found["lost"] == 0


# Ends before all messages


def test_interrupted_run_prints_what_it_has(server: RunningServer, topic: str) -> None:
    with start("pubsub", topic, "--rate", "50", "-o", "json", port=server.port) as running:
        _wait_for_message(server.port, topic)
        running.send_signal(signal.SIGINT)
        printed, complaints = running.communicate(timeout=60)
    assert (running.returncode, complaints) == (130, "")
    found = json.loads(printed)
    assert found["is_interrupted"] is True
    assert found["lost"] is None
    assert 0 < found["delivered"]["messages"] <= found["published"]["messages"] < 100_000


def _wait_for_message(port: int, topic: str) -> None:
    async def receive() -> None:
        async with MqttClient.connect(port=port) as client:
            await client.subscribe(topic)
            for _ in range(3):
                await client.messages.receive(timeout=60)

    asyncio.run(receive())


def test_sub_that_gets_fewer_messages_ends_with_1(server: RunningServer, topic: str) -> None:
    with start("sub", topic, "-n", "500", "--timeout", "1", "-o", "json", port=server.port) as receiving:
        while not receiving.poll() and not _has_subscriber(server, topic):
            pass
        measure("pub", topic, "-n", "20", "-q", "1", port=server.port)
        printed, _ = receiving.communicate(timeout=60)
    found = json.loads(printed)
    assert receiving.returncode == 1
    assert found["lost"] == 500 - found["delivered"]["messages"] > 0


def test_lost_connection_is_reported(topic: str) -> None:
    with scripted_server(lambda number: [number], ends_after=3) as port:
        done = run("pubsub", topic, "-n", "100", "--mqtt-version", "3", "--window", "3", port=port)
    assert done.exit_code == 1
    assert done.stderr == "error: the server closed the connection\n"


# Refusals


def test_wrong_address_is_one_line() -> None:
    port = free_port()
    done = run("pub", "a", port=port)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"error: no connection to 127.0.0.1:{port}: Connection refused.")
    assert len(done.stderr.splitlines()) == 1


def test_http_port_is_recognised(http_server: RunningServer) -> None:
    done = run("pub", "a", port=http_server.port_of("http"))
    assert done.exit_code == 1
    assert "is the HTTP port of a Penstock server" in done.stderr


@pytest.fixture(scope="module")
def guarded(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    """A server where anonymous clients may publish to out/# and subscribe to in/#."""
    rules = tmp_path_factory.mktemp("rules") / "acl"
    rules.write_text("anonymous\npublish out/#\nsubscribe in/#\n", encoding="utf-8")
    return start_server({"access": {"acl_file": str(rules)}})


def test_publisher_without_the_right_is_refused(guarded: RunningServer) -> None:
    done = run("pub", "in/a", "-q", "1", port=guarded.port)
    assert done.exit_code == 1
    assert done.stderr.startswith("error: the server refused 'in/a': ")
    assert "without --user" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("version", ["3", "5"])
def test_subscriber_without_the_right_is_refused(guarded: RunningServer, version: str) -> None:
    done = run("pubsub", "out/a", "--mqtt-version", version, port=guarded.port)
    assert done.exit_code == 1
    assert done.stderr.startswith("error: the server refused to subscribe to 'out/a': ")


def test_publishes_that_are_silently_refused_at_qos_0_are_lost(guarded: RunningServer) -> None:
    done = run("pubsub", "in/a", "-n", "10", "--timeout", "0.3", "-o", "json", port=guarded.port)
    assert done.exit_code == 1
    assert json.loads(done.stdout)["lost"] == 10


def test_password_is_needed(start_server: StartServer, tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    passwords.write_text("", encoding="utf-8")
    server = start_server({"access": {"password_file": str(passwords)}})
    done = run("pub", "a", port=server.port)
    assert done.exit_code == 1
    assert "Give --user and --password-file." in done.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("pub", "a/#"), "is a filter"),
        (("pub", "a", "--size", "27"), "--size"),
        (("pub", "a", "--password", "x"), "--user"),
        (("pubsub", "a", "--qos", "3"), "--qos"),
    ],
)
def test_wrong_flags_are_refused(words: tuple[str, ...], complaint: str) -> None:
    done = run(*words, port=1)
    assert done.exit_code == 2
    assert complaint in done.stderr


def test_help_does_not_import_the_client() -> None:
    probe = (
        "import penstock.cli.commands.bench, sys; print([m for m in sys.modules if 'penstock.client' in m])"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Servers that misbehave


@pytest.mark.parametrize(
    ("deliver", "lost", "duplicates", "out_of_order"),
    [
        (lambda number: [number], 0, 0, 0),
        (lambda number: [] if number == 5 else [number], 1, 0, 0),
        (lambda number: [number, number] if number == 5 else [number], 0, 1, 0),
        (lambda number: {3: [], 4: [4, 3]}.get(number, [number]), 0, 0, 1),
    ],
    ids=["all well", "lost", "doubled", "swapped"],
)
def test_losses_duplicates_and_order_are_noticed(
    topic: str, deliver: Any, lost: int, duplicates: int, out_of_order: int
) -> None:
    flags = ("-n", "20", "--mqtt-version", "3", "--timeout", "0.5", "-o", "json")
    with scripted_server(deliver) as port:
        done = run("pubsub", topic, *flags, port=port)
    found = json.loads(done.stdout)
    assert (found["lost"], found["duplicates"], found["out_of_order"]) == (lost, duplicates, out_of_order)
    assert done.exit_code == (1 if lost else 0)


CONNACK = bytes([0x20, 2, 0, 0])
SUBACK = bytes([0x90, 3, 0, 1, 0])
PINGRESP = bytes([0xD0, 0])


@contextmanager
def scripted_server(deliver: Any, ends_after: int | None = None) -> Iterator[int]:
    """Port of a server for one subscriber and one publisher.

    Args:
        deliver: from the number of a message to the numbers that are delivered then.
        ends_after: close all connections after this many messages.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = Thread(target=serve, args=(server, deliver, ends_after))
        thread.start()
        yield server.getsockname()[1]
        thread.join(20)


def serve(server: socket.socket, deliver: Any, ends_after: int | None) -> None:
    with ExitStack() as stack, suppress(EOFError, OSError):
        subscriber, requests = accept(server, stack)
        take_packet(requests)
        subscriber.sendall(SUBACK)
        publisher, published = accept(server, stack)
        messages: list[bytes] = []
        while ends_after is None or len(messages) < ends_after:
            packet = take_packet(published)
            if packet[0] == 0xC0:
                publisher.sendall(PINGRESP)
            elif packet[0] == 0x30:
                messages.append(packet)
                for number in deliver(len(messages) - 1):
                    subscriber.sendall(messages[number])


def accept(server: socket.socket, stack: ExitStack) -> tuple[socket.socket, BufferedReader]:
    client = stack.enter_context(server.accept()[0])
    stream = stack.enter_context(client.makefile("rb"))
    take_packet(stream)
    client.sendall(CONNACK)
    return client, stream


def take_packet(stream: BufferedReader) -> bytes:
    head = stream.read(2)
    if len(head) < 2:
        raise EOFError
    size = head[1]
    if size >= 0x80:
        head += stream.read(1)
        size = (size & 0x7F) | head[2] << 7
    return head + stream.read(size)
