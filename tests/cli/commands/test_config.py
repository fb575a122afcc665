"""`penstock config`, and what `penstock` itself promises."""

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from penstock import __version__
from penstock.app.preflight import find_mistakes
from penstock.build import is_compiled
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
    build = "compiled" if is_compiled() else "pure Python"
    assert capsys.readouterr().out == f"penstock {__version__} ({build})\n"


def test_version_is_the_one_of_the_package() -> None:
    assert version("penstock") == __version__


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
    assert run("config", "diff", *there, "-o", "json") == 0
    changed = msgspec.json.decode(capsys.readouterr().out)
    assert changed["outbox.messages"]["value"] == 77
    assert [name for name, each in changed.items() if each["value"] == each["default"]] == []


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


MISTAKES = """\
host: 0.0.0.0
data_dir: {folder}/penstock.yaml
mqtt: {{prot: 1, port: 8080, proxies: [nowhere]}}
http: {{tls_port: 8443}}
log: {{retention_s: soon, capture: ["a/#/b"]}}
"""


def test_check_finds_every_mistake_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "penstock.yaml"
    file.write_text(MISTAKES.format(folder=tmp_path))
    assert run("config", "check", "--config", str(file), "--set", "nothing=1") == 1
    output = capsys.readouterr()
    keys = [line.removeprefix("error: ").partition(":")[0] for line in output.err.splitlines()]
    assert sorted(keys) == [
        "data_dir",
        "host",
        "http.port",
        "http.tls_port",
        "log.capture[0]",
        "log.retention_s",
        "mqtt.prot",
        "mqtt.proxies",
        "nothing",
    ]
    assert output.out == ""


def test_check_reads_the_files_that_the_settings_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    acl, users = tmp_path / "acl", tmp_path / "users"
    acl.write_text("user ann\nmay everything\n")
    users.write_text("ann\n")
    names = f"access.acl_file={acl}", f"access.password_file={users}", "tls.certificate_file=/none.pem"
    assert run("config", "check", *(word for name in names for word in ("--set", name))) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if f"{acl}:2" in line]
    assert [line for line in lines if f"{users}:1" in line]
    assert [line for line in lines if "tls.certificate_file: /none.pem cannot be read" in line]
    assert len(lines) == 3


def test_check_as_json_has_all_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    doors = ("mqtt.port=off", "http.port=off", "sidecar.port=off")
    words = [word for door in doors for word in ("--set", door)]
    assert run("config", "check", *words, "-o", "json") == 1
    output = capsys.readouterr()
    found = msgspec.json.decode(output.out)
    assert (found["status"], output.err) == ("wrong", "")
    [mistake] = found["mistakes"]
    assert "every door is off" in mistake


def test_two_doors_on_one_port_of_different_addresses_are_no_mistake() -> None:
    settings = load(flags={"mqtt.port": 5672, "host": "127.0.0.2"}).settings
    assert find_mistakes(settings) == []


def test_init_writes_a_file_that_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "penstock.yaml"
    assert run("config", "init", str(file)) == 0
    assert load(file).settings == Settings()
    capsys.readouterr()
    assert run("config", "init", str(file)) == 1
    assert "is there already" in capsys.readouterr().err


def test_every_line_of_the_example_is_the_default_if_it_is_uncommented(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("config", "init") == 0
    keys = "|".join({name.rpartition(".")[2] for name in known_keys()})
    text = re.sub(rf"^( *)# ({keys}): ", r"\1\2: ", capsys.readouterr().out, flags=re.MULTILINE)
    file = tmp_path / "penstock.yaml"
    file.write_text(text)
    loaded = load(file)
    assert loaded.settings == Settings()
    assert {name for name, origin in loaded.origins.items() if origin == "default"} == {"topics"}


def test_explain_has_meaning_default_and_present_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("config", "explain", "log.retention_s", "--set", "log.retention_s=12h") == 0
    facts = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert facts["meaning"].startswith("Retention time")
    assert (facts["default"], facts["value"], facts["origin"]) == ("7d", "12h", "flag")
    assert (facts["variable"], facts["reload"]) == ("PENSTOCK_LOG__RETENTION_S", "at once")
    assert run("config", "explain", "slow") == 0
    assert "slow.keep_s: Time for which" in capsys.readouterr().out
    assert run("config", "explain", "slow.keep") == 1
    assert "did you mean slow.keep_s?" in capsys.readouterr().err


def test_diff_shows_only_what_differs_and_can_be_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("config", "diff") == 0
    assert capsys.readouterr().out == "# Every setting has its default.\n"
    assert run("config", "diff", "--set", "outbox.messages=5", "--set", "log.retention_s=7d") == 0
    text = capsys.readouterr().out
    assert text == "outbox:\n  messages: 5  # default 1000000, flag\n"
    assert run("config", "diff", "--set", "outbox.messages=5", "-o", "json") == 0
    assert msgspec.json.decode(capsys.readouterr().out) == {
        "outbox.messages": {"value": 5, "default": 1_000_000, "origin": "flag"}
    }


def test_the_schema_accepts_what_a_file_may_have(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("config", "schema") == 0
    schema = msgspec.json.decode(capsys.readouterr().out)
    check = Draft202012Validator(schema)
    given = {
        "log": {"retention_s": "7d", "retention_bytes": "10G"},
        "mqtt": {"port": "off", "tls_port": None},
        "http": {"port": [8080, 8081]},
        "logging": None,
        "topics": [{"filter": "a/#", "policy": "block", "ttl_ms": 5}],
    }
    assert list(check.iter_errors(given)) == []
    assert list(check.iter_errors(msgspec.json.decode(msgspec.json.encode(Settings())))) == []
    mistakes: list[object] = [{"lgo": {}}, {"mqtt": {"port": 70_000}}, {"topics": [{}]}]
    for wrong in [*mistakes, {"log": {"retention_s": "soon"}}]:
        assert list(check.iter_errors(wrong)), wrong


def test_reload_tells_what_was_applied_and_what_waits(
    start_server: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server = start_server({"http": {"port": 0}})
    file = server._folder / "penstock.yaml"
    before = file.read_text()
    there = ("--port", str(server.port_of("http")))
    assert run("reload", *there) == 0
    assert capsys.readouterr().out == "reloaded; no setting has changed\n"
    file.write_text(before + "\noutbox: {messages: 77}\nnode_id: other\n")
    assert run("reload", *there) == 0
    assert capsys.readouterr().out.splitlines() == [
        "applied outbox.messages: 1000000 -> 77",
        "node_id waits for the next start",
    ]
    assert run("config", "show", "--server", *there, "-o", "json") == 0
    assert msgspec.json.decode(capsys.readouterr().out)["outbox"]["messages"] == 77
