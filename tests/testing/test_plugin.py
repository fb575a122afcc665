"""The pytest plugin, in runs of pytest of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers import bare_environment

ASYNC = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function")


class Project:
    """A folder with tests, and what pytest says of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text, encoding="utf-8")

    def run(self, *flags: str) -> str:
        """Run pytest, with warnings as errors, and answer what it prints."""
        words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", "--strict-markers"]
        done = subprocess.run(
            [*words, "--rootdir", str(self._folder), *ASYNC, *flags, str(self._folder)],
            env=bare_environment(),
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        return done.stdout + done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty one."""
    return Project(tmp_path)


STORIES = """
import pytest

seen = set()

def test_one(penstock_server):
    seen.add(penstock_server.mqtt_port)
    with penstock_server.http() as http:
        http.publish("a", 1)
    assert len(penstock_server.messages()) == 1

def test_other(penstock_server):
    assert penstock_server.messages() == []

async def test_in_a_loop(penstock_async_server, penstock_server):
    async with penstock_async_server.mqtt() as client:
        await client.subscribe("a/#", qos=1)
        await penstock_async_server.wait_for_subscribers("a/#")
    assert penstock_async_server.mqtt_port == penstock_server.mqtt_port

def test_shared(penstock_session_server):
    with penstock_session_server.http() as http:
        http.publish("shared", 1)

def test_shared_again(penstock_session_server):
    assert len(penstock_session_server.messages("shared")) == 1

@pytest.mark.penstock(mqtt={"max_payload_bytes": 10}, ring={"messages": 3})
class TestMarked:
    @pytest.mark.penstock(mqtt={"receive_maximum": 7})
    def test_marked(self, penstock_server):
        settings = penstock_server.call(lambda server: server.settings)
        mqtt = settings.mqtt
        assert (mqtt.max_payload_bytes, mqtt.receive_maximum, settings.ring.messages) == (10, 7, 3)
"""


def test_fixtures_give_servers_to_tests_of_every_kind(project: Project) -> None:
    project.write("test_stories.py", STORIES)
    said = project.run()
    assert "6 passed" in said, said


def test_fixtures_work_in_several_processes_at_once(project: Project) -> None:
    project.write("test_stories.py", STORIES.replace("def test_shared_again", "def shared_again"))
    said = project.run("-n", "2")
    assert "5 passed" in said, said


def test_settings_of_all_servers_come_from_one_fixture(project: Project) -> None:
    project.write(
        "conftest.py",
        """
import pytest

@pytest.fixture(scope="session")
def penstock_settings(tmp_path_factory):
    return {"data_dir": tmp_path_factory.mktemp("data"), "mqtt": {"max_payload_bytes": 10}}
""",
    )
    project.write(
        "test_settings.py",
        """
import pytest

@pytest.mark.penstock(mqtt={"receive_maximum": 7})
def test_settings(penstock_server):
    settings = penstock_server.call(lambda server: server.settings)
    assert settings.data_dir
    assert (settings.mqtt.max_payload_bytes, settings.mqtt.receive_maximum) == (10, 7)
""",
    )
    said = project.run()
    assert "1 passed" in said, said


def test_a_failure_is_reported_with_what_the_server_knows(project: Project) -> None:
    project.write(
        "test_failing.py",
        """
import pytest

@pytest.mark.penstock(outbox={"messages": 1})
def test_that_loses_messages(penstock_server):
    with penstock_server.connect() as client, client.subscribe("flood", buffer=1):
        for _ in range(20):
            client.publish("flood", b"x" * 100_000)
        penstock_server.call(lambda server: server._housekeeping.log_losses())
        assert False

def test_that_loses_nothing(penstock_server):
    assert False

def test_that_stops(penstock_server):
    penstock_server.stop()
    assert False

def test_that_passes(penstock_server):
    pass
""",
    )
    said = project.run()
    assert "3 failed, 1 passed" in said, said
    losing, quiet, stopping = said.split("- penstock_server -")[1:]
    assert "addresses: mqtt://127.0.0.1:" in losing
    assert "not delivered:\n  flood " in losing
    assert "outbox-full (outbox)" in losing
    assert "warning: messages not delivered count=" in losing
    assert "everything was delivered" in quiet
    assert "the server is not running" in stopping


@pytest.mark.parametrize(
    ("marker", "complaint"),
    [
        ("{'mqtt': {}}", "takes settings by name"),
        ("mqtt={'prt': 1}", "mqtt.prt: unknown key; did you mean mqtt.port?"),
    ],
)
def test_a_wrong_marker_is_an_error_of_its_test(project: Project, marker: str, complaint: str) -> None:
    text = f"import pytest\n\n@pytest.mark.penstock({marker})\ndef test_it(penstock_server): pass\n"
    project.write("test_wrong.py", text)
    said = project.run()
    assert "1 error" in said
    assert complaint in said


def test_the_plugin_loads_nothing_before_a_test_asks_for_it() -> None:
    script = (
        "import sys; import penstock.testing.plugin; "
        "print(sorted({name.split('.')[1] for name in sys.modules if name.startswith('penstock.')}),"
        " 'structlog' in sys.modules, 'grpc' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=bare_environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout == "['testing'] False False\n"
