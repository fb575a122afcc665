"""Settings: precedence of sources, values in words, and error texts."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.config import PRESETS, Settings, core_settings, load
from penstock.config.keys import describe, known_keys
from penstock.core.settings import CoreSettings, TopicRule
from penstock.errors import InvalidConfig
from penstock.model import Policy


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "penstock.yaml"


def complaint(file: Path | None = None, **sources: Any) -> str:
    with pytest.raises(InvalidConfig) as caught:
        load(file, **sources)
    return str(caught.value)


def complaint_about(file: Path, text: str) -> str:
    file.write_text(text)
    return complaint(file).replace(str(file.parent) + "/", "")


# Sources


def test_without_any_source_everything_is_the_default() -> None:
    loaded = load()
    assert loaded.settings == Settings()
    assert set(loaded.origins.values()) == {"default"}
    assert loaded.origins.keys() == known_keys().keys()


def test_each_source_overrides_the_ones_before_it(file: Path) -> None:
    file.write_text("ring: {messages: 20, total_bytes: 7, partitions: 8}\nhost: file.example\n")
    environ = {"PENSTOCK_RING__TOTAL_BYTES": "8", "PENSTOCK_RING__PARTITIONS": "9"}
    loaded = load(file, environ, {"ring.partitions": 10}, "medium")
    ring = loaded.settings.ring
    assert (ring.messages, ring.total_bytes, ring.partitions) == (20, 8, 10)
    assert loaded.origins["ring.messages"] == f"{file}:1"
    assert loaded.origins["ring.total_bytes"] == "environment PENSTOCK_RING__TOTAL_BYTES"
    assert loaded.origins["ring.partitions"] == "flag"
    assert loaded.origins["host"] == f"{file}:2"
    assert loaded.origins["mqtt.port"] == "default"


def test_a_preset_overrides_defaults_only() -> None:
    loaded = load(preset="large", flags={"ring.messages": None})
    assert loaded.settings.ring.total_bytes == 2 * 1024**3
    assert loaded.origins["ring.messages"] == "preset large"


@pytest.mark.parametrize(
    ("preset", "ring"),
    [
        ("small", (5, 52_428_800, 16)),
        ("medium", (10, 524_288_000, 32)),
        ("large", (5, 2_147_483_648, 64)),
        ("massive", (3, 4_294_967_296, 128)),
        ("nexusd", (5, 52_428_800, 16)),
        ("resilient", (1000, 104_857_600, 16)),
    ],
)
def test_presets_stand_for_these_sizes(preset: str, ring: tuple[int, int, int]) -> None:
    loaded = load(preset=preset).settings.ring
    assert (loaded.messages, loaded.total_bytes, loaded.partitions) == ring


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    text = complaint(preset="huge")
    assert "'huge'" in text
    assert all(name in text for name in PRESETS)


def test_the_environment_may_name_the_file(file: Path, tmp_path: Path) -> None:
    file.write_text("host: named.example")
    environ = {"PENSTOCK_CONFIG": str(file)}
    assert load(environ=environ).settings.host == "named.example"
    other = tmp_path / "other.yaml"
    other.write_text("host: flag.example")
    assert load(other, environ).settings.host == "flag.example"


def test_an_empty_variable_counts_as_not_set() -> None:
    assert load(environ={"PENSTOCK_MQTT__PORT": "", "PENSTOCK_CONFIG": ""}).settings == Settings()


def test_variables_of_others_are_left_alone() -> None:
    environ = {
        "PATH": "/bin",
        "PENSTOCKS": "1",
        "PENSTOCK_SOAK": "1",
        "PENSTOCK_SERVICE_HOST": "10.0.0.1",
        "PENSTOCK_SERVICE_PORT": "1883",
        "PENSTOCK_SERVICE_PORT_MQTT": "1883",
        "PENSTOCK_PORT": "tcp://10.0.0.1:1883",
        "PENSTOCK_PORT_1883_TCP_ADDR": "10.0.0.1",
    }
    assert load(environ=environ).settings == Settings()


@pytest.mark.parametrize("variable", ["PENSTOCK_MQTT__PROT", "PENSTOCK_PORT", "PENSTOCK_MQTT_PORT"])
def test_an_unknown_variable_is_named_with_the_nearest_known_one(variable: str) -> None:
    text = complaint(environ={variable: "1883"})
    assert text.startswith(f"{variable}: unknown environment variable; did you mean PENSTOCK_")


def test_core_gets_its_part(file: Path) -> None:
    file.write_text("ring: {messages: 7}\ndefault_ttl_ms: 9\nhost: example\n")
    core = core_settings(load(file).settings)
    assert type(core) is CoreSettings
    assert (core.ring.messages, core.default_ttl_ms) == (7, 9)


# The data directory


def test_without_a_data_directory_nothing_is_captured() -> None:
    settings = load().settings
    assert (settings.data_dir, settings.durability, settings.log.capture) == (None, "fsync", ())


@pytest.mark.parametrize(
    "source",
    [
        {"environ": {"PENSTOCK_DATA_DIR": "data"}},
        {"flags": {"data_dir": "data"}},
    ],
)
def test_with_a_data_directory_the_log_keeps_everything(source: dict[str, Any]) -> None:
    loaded = load(**source)
    assert loaded.settings.data_dir == "data"
    assert core_settings(loaded.settings).log.capture == ("#", "$penstock/#")
    assert loaded.origins["log.capture"] == "default with data_dir"


@pytest.mark.parametrize(("text", "capture"), [("[a/#]", ("a/#",)), ("[]", ())])
def test_the_captured_topics_can_be_set(file: Path, text: str, capture: tuple[str, ...]) -> None:
    file.write_text(f"data_dir: data\nlog:\n  capture: {text}\n")
    loaded = load(file)
    assert loaded.settings.log.capture == capture
    assert loaded.origins["log.capture"] == f"{file}:3"


def test_a_data_directory_that_is_switched_off_again_changes_nothing(file: Path) -> None:
    file.write_text("data_dir: data\n")
    loaded = load(file, flags={"data_dir": "off"})
    assert loaded.settings == Settings()
    assert loaded.origins["log.capture"] == "default"


# Words


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("256K", 262_144),
        ("50M", 52_428_800),
        ("2G", 2_147_483_648),
        ("1 KiB", 1024),
        ("4kb", 4096),
        ("77", 77),
    ],
)
def test_sizes_are_understood_from_every_source(file: Path, text: str, size: int) -> None:
    file.write_text(f"ring: {{total_bytes: {text}}}\noutbox: {{bytes: '{text}'}}")
    settings = load(file).settings
    assert (settings.ring.total_bytes, settings.outbox.bytes) == (size, size)
    assert load(environ={"PENSTOCK_RING__TOTAL_BYTES": text}).settings.ring.total_bytes == size
    assert load(flags={"ring.total_bytes": text}).settings.ring.total_bytes == size


@pytest.mark.parametrize(
    ("text", "seconds"), [("7d", 604_800), ("30s", 30), ("1h30m", 5_400), ("500ms", 0.5), ("12.5", 12.5)]
)
def test_durations_are_understood_from_every_source(file: Path, text: str, seconds: float) -> None:
    file.write_text(f"log: {{retention_s: {text}}}\n")
    assert load(file).settings.log.retention_s == seconds
    assert load(environ={"PENSTOCK_LOG__RETENTION_S": text}).settings.log.retention_s == seconds
    assert load(flags={"log.retention_s": text}).settings.log.retention_s == seconds


def test_a_duration_has_the_unit_of_its_key_and_a_plain_number_too() -> None:
    values = load(
        environ={"PENSTOCK_OUTBOX__BLOCK_TIMEOUT_MS": "2s", "PENSTOCK_SLOW__AFTER_MS": "250"}
    ).values()
    assert (values["outbox.block_timeout_ms"], values["slow.after_ms"]) == (2_000, 250)
    assert "slow.after_ms: expected a whole number of at least 0, or with a unit such as 30s, got '1us'" in (
        complaint(environ={"PENSTOCK_SLOW__AFTER_MS": "1us"})
    )
    assert "web.rate_per_s: expected a number of at least 0, got '5s'" in complaint(
        environ={"PENSTOCK_WEB__RATE_PER_S": "5s"}
    )


def test_only_sizes_and_durations_may_have_a_unit() -> None:
    assert "ring.messages: expected a whole number of at least 0, got '5K'" in complaint(
        environ={"PENSTOCK_RING__MESSAGES": "5K"}
    )


@pytest.mark.parametrize("text", ["off", "'off'", "false", "null", "~"])
def test_off_closes_a_door(file: Path, text: str) -> None:
    file.write_text(f"mqtt: {{port: {text}}}")
    assert load(file).settings.mqtt.port is None


def test_off_closes_a_door_from_environment_and_flag() -> None:
    assert load(environ={"PENSTOCK_MQTT__PORT": "off"}).settings.mqtt.port is None
    assert load(flags={"mqtt.port": "off"}).settings.mqtt.port is None
    assert load(flags={"mqtt.port": "0"}).settings.mqtt.port == 0


@pytest.mark.parametrize(
    ("text", "value"),
    [("on", True), ("yes", True), ("1", True), ("off", False), ("No", False), ("null", None)],
)
def test_switches_understand_the_usual_words(text: str, value: bool | None) -> None:
    assert load(environ={"PENSTOCK_ACCESS__ALLOW_ANONYMOUS": text}).settings.access.allow_anonymous is value


def test_a_policy_is_given_by_its_name(file: Path) -> None:
    file.write_text("mqtt: {policy: drop-oldest}")
    assert load(file).settings.mqtt.policy is Policy.DROP_OLDEST


@pytest.mark.parametrize("text", ["a/#,b/+", '["a/#", "b/+"]', " a/# , b/+ "])
def test_a_list_fits_into_one_variable(text: str) -> None:
    assert load(environ={"PENSTOCK_LOG__CAPTURE": text}).settings.log.capture == ("a/#", "b/+")


def test_rules_are_a_list_of_sections(file: Path) -> None:
    file.write_text("topics:\n  - {filter: a/#, ring_bytes: 1M}\n  - {filter: b, policy: block}\n")
    rules = load(file).settings.topics
    assert rules == (
        TopicRule(filter="a/#", ring_bytes=1024**2),
        TopicRule(filter="b", policy=Policy.BLOCK),
    )


def test_rules_fit_into_a_variable_as_json() -> None:
    environ = {"PENSTOCK_TOPICS": '[{"filter": "a", "ttl_ms": 5}]'}
    assert load(environ=environ).settings.topics == (TopicRule(filter="a", ttl_ms=5),)


@pytest.mark.parametrize("text", ["", "---\n", "# nothing yet\n", "mqtt:\n#  port: 1\n", "{}"])
def test_a_file_or_section_without_keys_changes_nothing(file: Path, text: str) -> None:
    file.write_text(text)
    assert load(file).settings == Settings()


def test_anchors_and_merges_keep_working(file: Path) -> None:
    file.write_text("topics:\n  - &base {filter: a, ttl_ms: 5}\n  - {<<: *base, filter: b}\n")
    assert load(file).settings.topics[1] == TopicRule(filter="b", ttl_ms=5)


# Complaints


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mqtt:\n  prot: 1\n", "mqtt.prot: unknown key; did you mean mqtt.port? (penstock.yaml:2)"),
        ("mqqt:\n  port: 1\n", "mqqt: unknown key; did you mean mqtt? (penstock.yaml:1)"),
        ("hots: x\n", "hots: unknown key; did you mean host? (penstock.yaml:1)"),
        ("xyzzy: 1\n", "xyzzy: unknown key (penstock.yaml:1)"),
        (
            "mqtt.port: 1\n",
            "mqtt.port: unknown key; write its parts as sections, one below the other (penstock.yaml:1)",
        ),
        (
            "topics:\n  - filter: a\n    ring_mesages: 1\n",
            "topics[0].ring_mesages: unknown key; did you mean topics[0].ring_messages? (penstock.yaml:3)",
        ),
        ("topics:\n  - ttl_ms: 1\n", "topics[0].filter: is missing (penstock.yaml:2)"),
        (
            "topics:\n  - filter: a\n  - filter: b\n    ring_messages: -5\n",
            "topics[1].ring_messages: expected a whole number of at least 0, or off, got -5 "
            "(penstock.yaml:4)",
        ),
        (
            "topics:\n  - &base {filter: a}\n\n  - {<<: *base, ttl_ms: x}\n",
            "topics[1].ttl_ms: expected a whole number of at least 0, or with a unit such as 30s, or off, "
            "got 'x' (penstock.yaml:4)",
        ),
        ("topics: [a]\n", "topics[0]: expected a section with keys, got 'a' (penstock.yaml:1)"),
        ("topics: a\n", "topics: expected a list of rules, got 'a' (penstock.yaml:1)"),
        (
            "\nmqtt:\n  port: 70000\n",
            "mqtt.port: expected a whole number from 0 to 65535, or off, got 70000 (penstock.yaml:3)",
        ),
        ("mqtt: 5\n", "mqtt: expected a section with keys, got 5 (penstock.yaml:1)"),
        ("mqtt: {port: {a: 1}}\n", "got a section with keys (penstock.yaml:1)"),
        ("mqtt: {port: true}\n", "got True (penstock.yaml:1)"),
        ("outbox: {messages: 0}\n", "outbox.messages: expected a whole number of at least 1, got 0"),
        ("outbox: {messages:}\n", "outbox.messages: expected a whole number of at least 1, got nothing"),
        ("outbox: {messages: '5'}\n", "outbox.messages: expected a whole number of at least 1, got '5'"),
        (
            "mqtt: {max_payload_bytes: 1X}\n",
            "mqtt.max_payload_bytes: expected a whole number from 1 to 268000000, or with a unit such as "
            "50M, got '1X' (penstock.yaml:1)",
        ),
        (
            "mqtt: {connect_timeout_s: 0}\n",
            "mqtt.connect_timeout_s: expected a number above 0, or with a unit such as 30s, got 0",
        ),
        ("shutdown_timeout_s: .nan\n", "shutdown_timeout_s: expected a number of at least 0"),
        ("shutdown_timeout_s: .inf\n", "shutdown_timeout_s: expected a number of at least 0"),
        ("host: ''\n", "host: expected text that is not empty, got ''"),
        (
            "logging: {level: loud}\n",
            "logging.level: expected one of debug, info, warning, error, got 'loud'",
        ),
        ("mqtt: {policy: x}\n", "mqtt.policy: expected one of drop-oldest, drop-newest, block, disconnect"),
        ("data_dir: ''\n", "data_dir: expected text that is not empty, or off, got ''"),
        ("durability: always\n", "durability: expected one of fsync, os, memory, got 'always'"),
        ("log: {capture: [1]}\n", "log.capture: expected a list of texts"),
        ("a: 1\nhost: x\na: 2\n", "penstock.yaml:3: 'a' is given twice, first on line 1"),
        ("mqtt:\n  port: 1\n  port: 2\n", "penstock.yaml:3: 'port' is given twice, first on line 2"),
        ("\n- a\n", "penstock.yaml:2: expected keys with values, got a list"),
        ("just words\n", "penstock.yaml:1: expected keys with values, got text"),
        ("host: x\n  mqtt: [\n", "penstock.yaml:2: not valid YAML:"),
        ("a: &a\n  b: *a\n", "a: unknown key (penstock.yaml:1)"),
        ("host: a\n---\nhost: b\n", "penstock.yaml:2: not valid YAML:"),
        ("host: \x07\n", "penstock.yaml: not valid YAML:"),
    ],
)
def test_an_error_names_key_limit_and_line(file: Path, text: str, says: str) -> None:
    assert says in complaint_about(file, text)


def test_an_error_names_the_variable_or_the_flag() -> None:
    text = complaint(environ={"PENSTOCK_MQTT__PORT": "mqtt"})
    assert text.startswith("mqtt.port: expected a whole number from 0 to 65535, or off, got 'mqtt'")
    assert text.endswith("(environment PENSTOCK_MQTT__PORT)")
    assert complaint(flags={"mqtt.port": -1}).endswith("got -1 (flag)")
    assert complaint(flags={"mqtt.prot": 1}) == "mqtt.prot: unknown key; did you mean mqtt.port? (flag)"
    assert "expected a JSON list" in complaint(environ={"PENSTOCK_LOG__CAPTURE": "[oops"})


def test_a_file_that_cannot_be_read_is_named(file: Path) -> None:
    assert complaint(file) == f"{file}: cannot be read: No such file or directory"
    assert complaint(file.parent) == f"{file.parent}: cannot be read: Is a directory"
    file.write_bytes(b"host: \xff\xfe")
    assert f"{file}: cannot be read" in complaint(file)


def test_every_key_describes_its_values() -> None:
    assert all(describe(key) for key in known_keys().values())


@pytest.mark.parametrize("filter", ["a/#/b", "x#", "", "$share/g/a"])
@pytest.mark.parametrize("key", ["topics", "log"])
def test_a_filter_that_can_match_nothing_is_an_error_that_names_its_key(
    key: str, filter: str, file: Path
) -> None:
    value = [{"filter": filter}] if key == "topics" else {"capture": [filter]}
    file.write_text(json.dumps({key: value}))
    named = r"topics\[0\]\.filter" if key == "topics" else r"log\.capture\[0\]"
    with pytest.raises(InvalidConfig, match=named):
        load(file)


# Lists of numbers


@pytest.mark.parametrize(
    ("text", "ports"),
    [
        ("8080", (8080,)),
        ("[8080, 8000]", (8080, 8000)),
        ("off", ()),
        ("[]", ()),
        ("null", None),
        ("true", None),
    ],
)
def test_a_list_of_ports_may_be_one_port_or_off(file: Path, text: str, ports: tuple[int, ...] | None) -> None:
    file.write_text(f"http: {{port: {text}}}\n")
    if ports is None:
        assert "http.port: expected a whole number from 0 to 65535, a list of them, or off" in complaint(file)
    else:
        assert load(file).settings.http.port == ports


@pytest.mark.parametrize(
    ("text", "ports"), [("0", (0,)), ("8080,8000", (8080, 8000)), ("[8000]", (8000,)), ("OFF", ())]
)
def test_a_flag_may_name_several_ports(text: str, ports: tuple[int, ...]) -> None:
    assert load(flags={"http.port": text}).settings.http.port == ports


@pytest.mark.parametrize("text", ["65536", "8080,", "http", "8080,8000.5", "[[8080]]"])
def test_an_invalid_port_is_refused_in_a_list_too(text: str) -> None:
    said = complaint(flags={"http.port": text})
    assert said.startswith("http.port: expected a whole number")
    assert said.endswith(f"got {text!r} (flag)")
