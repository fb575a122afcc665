"""`penstock serve`: what its flags mean before anything is started."""

import sys
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.cli.commands.serve import SETTINGS, NexusdFlags, SettingFlags, choose_data_dir
from penstock.config import load
from penstock.extras import how_to_get


@pytest.fixture(autouse=True)
def no_door(clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is accepted, nothing is served."""
    for door in ("MQTT", "HTTP", "SIDECAR"):
        monkeypatch.setenv(f"PENSTOCK_{door}__PORT", "off")


def complaint(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["serve", *words])
    assert ended.value.code == 1
    return capsys.readouterr().err.removeprefix("error: ").rstrip()


@pytest.mark.parametrize(
    ("data_dir", "backend", "path", "chosen"),
    [
        (None, None, None, None),
        ("here", None, None, "here"),
        (None, "rocksdb", "there", "there"),
        (None, "memory", None, "off"),
    ],
)
def test_the_data_directory_has_two_names(
    data_dir: str | None, backend: str | None, path: str | None, chosen: str | None
) -> None:
    assert choose_data_dir(data_dir, backend, path) == chosen


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--buffer-backend rocksdb", "--buffer-backend rocksdb: needs --rocksdb-path"),
        ("--buffer-backend rocksdb --rocksdb-path off", "--buffer-backend rocksdb: needs --rocksdb-path"),
        ("--rocksdb-path there", "--rocksdb-path: needs --buffer-backend rocksdb"),
        ("--buffer-backend memory --rocksdb-path there", "--rocksdb-path: needs --buffer-backend rocksdb"),
        (
            "--buffer-backend redis",
            "--buffer-backend: expected one of memory, rocksdb, got 'redis'",
        ),
        ("--data-dir here --buffer-backend rocksdb --rocksdb-path there", "--data-dir: replaces"),
        ("--data-dir here --buffer-backend memory", "--data-dir: replaces"),
        ("--backpressure-policy never", "sidecar.policy: expected one of drop-oldest, drop-newest, block"),
        ("--paused-subscription-ttl soon", "sidecar.paused_ttl_ms: expected a whole number of at least 0"),
        ("--sidecar-host 0.0.0.0 --app-port 0", "sidecar.host: 0.0.0.0 is not loopback"),
        ("--set outbox.messages", "--set outbox.messages: write KEY=VALUE"),
        ("--set outbox.mesages=5", "outbox.mesages: unknown key; did you mean outbox.messages? (flag)"),
        ("--grpc-port 0 --app-port 0", "sidecar.port: two flags set it; give one"),
        ("--host a --set host=b", "host: two flags set it; give one"),
        ("--durability always", "durability: expected one of fsync, os, memory, got 'always' (flag)"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(
    words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert complaint(capsys, *words.split()).startswith(says)


@pytest.mark.parametrize("words", [["--data-dir"], ["--buffer-backend", "rocksdb", "--rocksdb-path"]])
def test_a_data_directory_that_cannot_be_one_is_refused(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    assert complaint(capsys, *words, str(file)).startswith(f"data_dir: {file} cannot be used")


def test_a_data_directory_needs_the_extra(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)  # as if it could not be found
    says = complaint(capsys, "--data-dir", str(tmp_path / "data"))
    assert says == f"data_dir: needs the extra `log`: {how_to_get('log')}"
    assert not (tmp_path / "data").exists()


def test_every_flag_that_sets_something_sets_a_setting_that_there_is() -> None:
    flags = {*SettingFlags.__struct_fields__, *NexusdFlags.__struct_fields__}
    assert set(SETTINGS) == flags
    assert set(SETTINGS.values()) <= set(load(None, {}).values())
