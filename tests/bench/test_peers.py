"""Brokers of a bench: choice, targets, start and stop, and those that meet in a contest."""

import socket
import sys
from pathlib import Path
from threading import Thread

import msgspec
import pytest
from msgspec.structs import replace

from bench.artifacts import FetchError
from bench.errors import BenchError, WrongOption
from bench.load.build import find_program, require_program
from bench.peers.broker import Broker
from bench.peers.builds import NEW_MOSQUITTO, Build, debian_archive, fetch, go_program
from bench.peers.contenders import Contenders
from bench.peers.recipes import PEERS, PENSTOCK, PENSTOCK_HTTP, choose_peers
from bench.peers.target import Target, accepts, free_port, parse_target
from tests.support.builds import CACHE

needs_mosquitto = pytest.mark.skipif(find_program("mosquitto") is None, reason="mosquitto is not installed")


def test_unknown_peers_are_refused_and_none_means_none() -> None:
    assert choose_peers("none") == []
    with pytest.raises(WrongOption, match="unknown peer kafka"):
        choose_peers("mosquitto,kafka")


def test_target_is_a_name_and_a_loopback_address() -> None:
    assert parse_target("mine=nats://localhost:4222") == Target("mine", "nats", "127.0.0.1", 4222)


@pytest.mark.parametrize(
    "text",
    [
        "mqtt://127.0.0.1:1883",
        "a=mqtt://127.0.0.1",
        "a=amqp://127.0.0.1:5672",
        "a=mqtt://192.0.2.1:1883",
        "a=mqtt://h:x",
    ],
)
def test_targets_without_name_port_or_loopback_are_refused(text: str) -> None:
    with pytest.raises(WrongOption, match="--target"):
        parse_target(text)


@needs_mosquitto
def test_broker_leaves_nothing_running_after_stop(tmp_path: Path) -> None:
    program = find_program("mosquitto")
    assert program is not None
    broker = Broker(PEERS["mosquitto-debian"], program, tmp_path, cpu=0)
    broker.start()
    first = broker.target
    broker.restart()
    second = broker.target
    broker.stop()
    for target in (first, second):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((target.host, target.port), timeout=1)


def test_broker_that_does_not_start_is_reported_with_its_output(tmp_path: Path) -> None:
    broken = msgspec.structs.replace(
        PEERS["mosquitto-debian"],
        command=lambda program, _port, _config: [program, "-c", "raise SystemExit('no such luck')"],
        version=lambda _: "none",
    )
    with pytest.raises(BenchError, match=r"did not start .*no such luck"):
        Broker(broken, sys.executable, tmp_path, cpu=0).start()


def test_stopped_broker_can_be_stopped_again(tmp_path: Path) -> None:
    broker = Broker(PENSTOCK, PENSTOCK.program, tmp_path, cpu=0)
    broker.stop()
    broker.restart()
    assert accepts(broker.target.host, broker.target.port)
    broker.stop()
    broker.stop()
    assert not accepts(broker.target.host, broker.target.port)


def test_only_servers_of_its_protocol_are_started_for_a_contest(tmp_path: Path) -> None:
    given = Target("mine", "http", "127.0.0.1", 1)
    contenders = Contenders(
        [], [], [given, Target("other", "mqtt", "127.0.0.1", 2)], tmp_path, 0, lambda _: None
    )
    assert [contender.target.name for contender in contenders.start_websocket_servers()] == ["mine"]
    assert [contender.target.name for contender in contenders.start_stream_servers()] == ["mine"]
    assert [contender.target.name for contender in contenders.start_brokers()] == ["other"]


def test_penstock_over_http_is_started_anew_for_each_contest_and_runs_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = replace(PENSTOCK_HTTP, first_request=b"")
    monkeypatch.setattr("bench.peers.contenders.PENSTOCK_HTTP", quick)
    contenders = Contenders([PENSTOCK], [], [], tmp_path, 0, lambda _: None)
    try:
        [first] = contenders.start_websocket_servers()
        before = first.target
        [second] = contenders.start_stream_servers()
        assert second is first
        assert accepts(second.target.host, second.target.port)
        assert not accepts(before.host, before.port)
    finally:
        contenders.stop()


def test_server_that_refuses_its_first_request_is_stopped_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setattr("bench.peers.broker.free_port", lambda: port)
    strange = replace(PENSTOCK_HTTP, first_request=b"GET /nowhere HTTP/1.0\r\nHost: localhost\r\n\r\n")
    broker = Broker(strange, strange.program, tmp_path, cpu=0)
    with pytest.raises(BenchError, match=r"penstock-http did not respond with 200 .* 404"):
        broker.start()
    assert not accepts("127.0.0.1", port)


def test_program_without_a_file_that_it_needs_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(BenchError, match=r"^/no/such\.so is missing; install it with: apt-get install some"):
        require_program("gcc", ("some",), lambda _: None, ("/no/such.so",))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty cache of the user."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "penstock"


def test_program_is_built_once_and_kept(cache: Path) -> None:
    said: list[str] = []

    def compile_program(folder: Path, say: object) -> None:
        (folder / "program").touch()

    build = Build("some-1.0", "program", compile_program)
    assert build.require(said.append) == build.require(said.append) == str(cache / "some-1.0" / "program")
    assert (cache / "some-1.0" / "program").exists()
    assert said == ["compiling some-1.0: a minute or two, once"]


GO = """#!/bin/sh
[ "$3" = github.com/some/server/v2@v1.2.3 ] && touch "$GOBIN/server" && exit
echo "go: $3: reading http://127.0.0.1:1/some: 404" >&2
echo no such module >&2
exit 1
"""


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `go` that knows one module."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "go").write_text(GO)
    (tmp_path / "bin" / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")


@pytest.mark.usefixtures("go")
def test_go_program_is_that_of_its_package(cache: Path) -> None:
    program = go_program("some", "github.com/some/server/v2", "v1.2.3").require(lambda _: None)
    assert program == str(cache / "some-v1.2.3" / "server")
    assert Path(program).exists()


@pytest.mark.usefixtures("go")
def test_peer_that_cannot_be_built_is_left_out_with_one_line_and_the_others_are_measured(
    cache: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    missing = replace(PEERS["nats"], name="some", build=go_program("some", "github.com/some/other", "v9"))
    given = Target("mine", "mqtt", "127.0.0.1", 1)
    contenders = Contenders([], [missing], [given], tmp_path, 0, said.append)
    for _ in range(2):  # it is tried once
        assert [contender.target.name for contender in contenders.start_brokers()] == ["mine"]
    failure = "go: github.com/some/other@v9: reading /some: 404 no such module"  # without the host
    reason = f"some-v9 cannot be built: go ended with 1: {failure}"
    assert contenders.left_out == {"some": reason}
    assert said == ["compiling some-v9: a minute or two, once", f"some is left out: {reason}"]
    assert [file.name for file in cache.iterdir()] == ["some-v9.lock"]


def test_peer_that_does_not_start_is_left_out(tmp_path: Path) -> None:
    broken = replace(
        PENSTOCK,
        name="broken",
        command=lambda program, _port, _config: [program, "-c", "raise SystemExit(3)"],
    )
    given = Target("mine", "mqtt", "127.0.0.1", 1)
    contenders = Contenders([], [broken], [given], tmp_path, 0, lambda _: None)
    assert [contender.target.name for contender in contenders.start_brokers()] == ["mine"]
    assert "broken did not start (exit status 3)" in contenders.left_out["broken"]


@pytest.mark.usefixtures("cache")
def test_build_without_go_names_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BenchError, match="some needs Go to be compiled"):
        go_program("some", "github.com/some/server", "v1").require(lambda _: None)


def test_fetched_file_is_the_one_that_was_expected(tmp_path: Path) -> None:
    file = tmp_path / "source"
    file.write_bytes(b"other")
    with pytest.raises(FetchError, match="not the file that was expected"):
        fetch(file.as_uri(), "00" * 32)
    with pytest.raises(FetchError, match="No such file"):
        fetch((tmp_path / "none").as_uri(), "00" * 32)


APT = """#!/bin/sh
printf '%s\\n' "$@" >"$0.words"
printf '%s\\n' mirror+file:/etc/mirrors/ http://me:secret@127.0.0.1/ file:/srv/archive/ file:/srv/other/
"""


def apt_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    program = folder / "apt-get"
    program.write_text(script)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return program


def test_archive_is_the_first_of_debian_s_main_ones_that_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apt = apt_in(tmp_path, monkeypatch, APT)
    assert debian_archive() == "file:/srv/archive/"
    words = apt.with_name("apt-get.words").read_text().splitlines()
    assert words[:3] == ["indextargets", "--format", "$(REPO_URI)"]
    assert {"Origin: Debian", "Label: Debian", "Component: main"} <= set(words)


@pytest.mark.usefixtures("cache")
def test_newest_mosquitto_is_left_out_without_an_archive_and_without_apt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.peers.builds.require_program", lambda *_: "")  # nothing is installed
    apt_in(tmp_path, monkeypatch, "#!/bin/sh\n")
    given = Target("mine", "mqtt", "127.0.0.1", 1)

    def left_out() -> dict[str, str]:
        contenders = Contenders([], [PEERS["mosquitto"]], [given], tmp_path, 0, lambda _: None)
        assert [contender.target.name for contender in contenders.start_brokers()] == ["mine"]
        return contenders.left_out

    where = "its source is in the Debian archive of apt"
    assert left_out() == {"mosquitto": f"{where}, and apt has no index of one; try apt-get update"}
    monkeypatch.setattr("bench.peers.builds.find_program", lambda _: None)
    assert left_out() == {"mosquitto": f"{where}, and there is no apt here"}


def test_source_that_is_cut_short_cannot_be_fetched() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def respond() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort")

        thread = Thread(target=respond)
        thread.start()
        with pytest.raises(FetchError, match="IncompleteRead"):
            fetch(f"http://127.0.0.1:{server.getsockname()[1]}/source", "00" * 32)
        thread.join(10)


@pytest.mark.timeout(600)
def test_newest_mosquitto_is_built_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(CACHE))  # where it stays for later runs of the tests
    try:
        program = NEW_MOSQUITTO.require(lambda _: None)
    except BenchError as error:
        pytest.skip(str(error))
    broker = Broker(PEERS["mosquitto"], program, tmp_path, cpu=0)
    assert broker.version == "mosquitto version 2.1.2"
    broker.start()
    try:
        assert accepts(broker.target.host, broker.target.port)
    finally:
        broker.stop()
