"""`penstock config`, and what `penstock` itself promises."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from penstock import __version__
from penstock.cli import main
from penstock.config import Settings, load
from penstock.config.keys import known_keys
from tests.support.servers import StartServer

pytestmark = pytest.mark.usefixtures("clean_environment")


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return int(ended.value.code or 0)


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--version"])
    assert capsys.readouterr().out == f"penstock {__version__}\n"


def test_version_is_the_one_of_the_package() -> None:
    project = Path(__file__).parents[3] / "pyproject.toml"
    assert f'\nversion = "{__version__}"\n' in project.read_text()


def test_an_unknown_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("sreve") == 2
    assert "serve" in capsys.readouterr().err


def test_check_says_ok(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "penstock.yaml"
    file.write_text("mqtt: {port: off}")
    assert run("config", "check", "--config", str(file)) == 0
    assert capsys.readouterr().out == "ok\n"


def test_check_complains_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "penstock.yaml"
    file.write_text("mqtt: {prot: 1}")
    assert run("config", "check", "--config", str(file)) == 1
    output = capsys.readouterr()
    assert output.err == f"error: mqtt.prot: unknown key; did you mean mqtt.port? ({file}:1)\n"
    assert output.out == ""


def test_what_show_prints_can_be_loaded_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = tmp_path / "first.yaml"
    first.write_text("host: 'a: b # c'\nmqtt: {port: off}\ntopics: [{filter: 'a/#', policy: block}]\n")
    assert run("config", "show", "--config", str(first), "--preset", "large", "--origin") == 0
    second = tmp_path / "second.yaml"
    second.write_text(capsys.readouterr().out)
    assert load(second).settings == load(first, preset="large").settings != Settings()


@pytest.mark.parametrize(
    "command",
    [["config", "show"], ["serve", "--mqtt-port", "off", "--http-port", "off", "--sidecar-port", "off"]],
)
def test_a_second_preset_is_refused_rather_than_overlooked(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*command, "--preset", "small", "--preset", "hardened") == 1
    assert "--preset: give one preset, not several" in capsys.readouterr().err


def test_show_tells_every_origin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_MQTT__PORT", "1999")
    file = tmp_path / "penstock.yaml"
    file.write_text("host: example\n")
    assert run("config", "show", "--config", str(file), "--preset", "small", "--origin") == 0
    lines = capsys.readouterr().out.splitlines()
    assert f'host: "example"  # {file}:1' in lines
    assert "  port: 1999  # environment PENSTOCK_MQTT__PORT" in lines
    assert "  messages: 5  # preset small" in lines
    assert 'node_id: ""  # default' in lines
    assert sum("  # " in line for line in lines) == len(known_keys())


def test_show_tells_what_a_data_directory_changes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_DATA_DIR", "data")
    assert run("config", "show", "--origin") == 0
    lines = capsys.readouterr().out.splitlines()
    assert 'data_dir: "data"  # environment PENSTOCK_DATA_DIR' in lines
    assert '  capture: ["#","$penstock/#"]  # default with data_dir' in lines


def test_show_as_json_is_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("config", "show", "-o", "json") == 0
    assert msgspec.json.decode(capsys.readouterr().out, type=Settings) == Settings()
    assert run("config", "show", "-o", "json", "--origin") == 0
    by_key = msgspec.json.decode(capsys.readouterr().out)
    assert by_key["mqtt.port"] == {"value": 1883, "origin": "default"}


def test_check_as_json_says_what_is_set(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_MQTT__PORT", "1999")
    assert run("config", "check", "-o", "json") == 0
    assert msgspec.json.decode(capsys.readouterr().out) == {"status": "ok", "set": ["mqtt.port"]}


def test_a_running_server_shows_what_it_goes_by(
    start_server: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server = start_server({"http": {"port": 0}, "outbox": {"messages": 77}})
    there = ("--server", "--port", str(server.port_of("http")))
    assert run("config", "show", *there, "-o", "json") == 0
    assert msgspec.json.decode(capsys.readouterr().out)["outbox"]["messages"] == 77
    assert run("config", "show", *there, "--origin") == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  messages: 77")]
    assert "penstock.yaml:" in line


@pytest.mark.parametrize(
    "words", [("--server", "--preset", "nexusd"), ("--port", "1"), ("--server", "--config", "file.yaml")]
)
def test_a_server_is_asked_or_a_file_is_read(words: tuple[str, ...]) -> None:
    assert run("config", "show", *words) == 2


def test_asking_for_the_version_loads_no_command() -> None:
    script = (
        "import sys; from penstock.cli import main; main(['--version']);"
        "print(sorted({'typer', 'msgspec', 'yaml', 'structlog', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_yaml_is_loaded_for_a_file_only(tmp_path: Path) -> None:
    file = tmp_path / "penstock.yaml"
    file.touch()
    script = (
        "import sys; from pathlib import Path; from penstock.config import load;"
        "load(); print('yaml' in sys.modules); load(Path(sys.argv[1])); print('yaml' in sys.modules)"
    )
    words = [sys.executable, "-c", script, str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_the_module_can_be_run(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "penstock", "config", "check", "--config", str(tmp_path / "none.yaml")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
