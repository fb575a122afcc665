"""The short programs in `examples`: each is run as its README says, against a real server."""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from penstock.client import HttpClient
from tests.support.builds import go_build, npm_install
from tests.support.servers import RunningServer, StartServer, bare_environment
from tests.support.waiting import until_sync

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def stored(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    """A server with a data directory, as `make run` starts it."""
    return start_server({"http": {"port": 0}, "data_dir": str(tmp_path_factory.mktemp("examples") / "data")})


def http_address(server: RunningServer) -> str:
    return f"http://127.0.0.1:{server.port_of('http')}"


def grpc_address(server: RunningServer) -> str:
    return f"127.0.0.1:{server.port_of('grpc')}"


def run(*words: str, **variables: str) -> str:
    """Run a program to its end, and return what it printed."""
    done = subprocess.run(
        words, env=bare_environment() | variables, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def running(*words: str, **variables: str) -> Iterator[Callable[[str], list[str]]]:
    """Start a program; the result reads its lines up to one that contains a text. It is killed at the end."""
    process = subprocess.Popen(
        words, env=bare_environment() | variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    output = process.stdout

    def read_until(wanted: str) -> list[str]:
        lines = []
        for line in output:
            lines.append(line.rstrip())
            if wanted in line:
                return lines
        raise AssertionError(f"ended without {wanted!r}: {lines}")

    try:
        yield read_until
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        output.close()


def test_readme_names_every_example() -> None:
    named = set(
        re.findall(r"^\| \[(\w+)\]", (EXAMPLES / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert named == {path.name for path in EXAMPLES.iterdir() if path.is_dir() and path.name != "__pycache__"}


def test_sensors_become_a_table_and_no_reading_is_there_twice(stored: RunningServer, tmp_path: Path) -> None:
    run(sys.executable, str(EXAMPLES / "sensors" / "sensors.py"), str(stored.port))
    words = [
        sys.executable,
        str(EXAMPLES / "sensors" / "to_table.py"),
        str(tmp_path / "table"),
        http_address(stored),
    ]
    assert run(*words).startswith("40 rows added, 40 in all\n")
    assert run(*words).startswith("0 rows added, 40 in all\n")
    with HttpClient(http_address(stored)) as client:
        client.publish("greenhouse/north", {"celsius": 99.5, "humidity": 1})
    printed = run(*words)
    assert printed.startswith("1 rows added, 41 in all\n")
    assert "'celsius_max': 99.5" in printed


def test_worker_ships_each_order_and_resumes_after_a_kill(stored: RunningServer, tmp_path: Path) -> None:
    variables = {"PENSTOCK": grpc_address(stored), "CURSOR": str(tmp_path / "orders.cursor")}
    worker = (sys.executable, str(EXAMPLES / "orders" / "worker.py"))
    app = ("--app-dir", str(EXAMPLES / "orders"), "service:app", "--port", "0")
    with running(sys.executable, "-m", "uvicorn", *app, **variables) as service:
        [address] = re.findall(r"http://\S+", service("Uvicorn running on")[-1])

        def order(item: str, key: str) -> int:
            headers = {"Idempotency-Key": key}
            response = httpx.post(f"{address}/orders", json={"item": item, "count": 2}, headers=headers)
            assert response.status_code == 202
            return int(response.json()["sequence"])

        with running(*worker, **variables) as read_until:
            read_until("waiting for orders")
            assert order("bolt", "a") == order("bolt", "a") == 1  # one order, sent twice
            assert read_until("shipping") == ["shipping 2 x bolt (order 1)"]
        assert order("bolt", "b") == 2
        with running(*worker, **variables) as read_until:
            assert read_until("(order 2)")[-1] == "shipping 2 x bolt (order 2)"


def test_exactly_once_consumer_counts_each_payment_once_across_kills(
    stored: RunningServer, tmp_path: Path
) -> None:
    file = tmp_path / "totals.db"
    words = (sys.executable, str(EXAMPLES / "exactly_once" / "consumer.py"), str(file), grpc_address(stored))

    def total() -> float:
        with closing(sqlite3.connect(file)) as database:
            return float(database.execute("select coalesce(sum(sum), 0) from totals").fetchone()[0])

    def pay(client: HttpClient, amount: int, times: int) -> None:
        client.publish_many([{"topic": "payments/anna", "data": amount}] * times)

    with HttpClient(http_address(stored)) as client:
        with running(*words) as read_until:
            read_until("counting")
            pay(client, 1, 10)
            until_sync(lambda: total() == 10, "not all payments were counted")
        pay(client, 5, 10)  # while it is down
        with running(*words):
            until_sync(lambda: total() == 60, "not all payments were counted")
        with running(*words):
            pay(client, 1, 1)
            until_sync(lambda: total() > 60, "the last payment was not counted")
            assert total() == 61


def test_program_under_test_is_tested_in_the_checkout_and_as_a_copy(tmp_path: Path) -> None:
    folder = EXAMPLES / "with_pytest"
    for place in (folder, shutil.copytree(folder, tmp_path / "with_pytest")):
        words = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(place))
        assert "1 passed" in run(*words)


def test_go_program_hears_itself(stored: RunningServer) -> None:
    program = go_build(EXAMPLES / "go", ".") / "hello"
    assert run(str(program), f"127.0.0.1:{stored.port}") == "hello/go first light\n"


def test_node_program_hears_itself(stored: RunningServer) -> None:
    [(name, version)] = json.loads((EXAMPLES / "node" / "package.json").read_text())["dependencies"].items()
    modules = npm_install(f"{name}@{version}") / "node_modules"
    words = ("node", str(EXAMPLES / "node" / "hello.js"), f"mqtt://127.0.0.1:{stored.port}")
    assert run(*words, NODE_PATH=str(modules)) == "hello/node first light\n"


def test_java_program_hears_what_it_published(stored: RunningServer) -> None:
    if shutil.which("java") is None:
        pytest.skip("needs java")
    words = ("java", str(EXAMPLES / "java" / "Hello.java"), f"127.0.0.1:{stored.port_of('http')}")
    event = json.loads(run(*words, PATH=os.environ["PATH"]))
    assert (event["topic"], event["data"]) == ("hello/java", "first light")
