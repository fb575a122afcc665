"""Configuration files, variables and flags that nobody meant: settings, or one clear complaint."""

from pathlib import Path
from random import Random

import pytest

from penstock.config import load
from penstock.config.keys import known_keys
from penstock.config.sources import variable_of
from penstock.errors import InvalidConfig
from tests.fuzz.damage import damaged, damaged_text
from tests.fuzz.verdict import judge

SAMPLES = (
    "",
    "host: 127.0.0.1\nmqtt:\n  port: 0\n  max_payload_bytes: 4M\n",
    "ring: {messages: 20, total_bytes: 7, partitions: 8}\nhost: file.example\n",
    "access:\n  password_file: /etc/passwords\n  allow_anonymous: off\n",
    "topics:\n  - filter: a/#\n    ttl_ms: 10\n    policy: block\n  - filter: b/+\n    batch_size: 2\n",
    "base: &base\n  level: info\nlogging:\n  <<: *base\n  format: json\n",
    "log:\n  capture: ['#', 'a/b']\n  memory_bytes: '50M'\n# done\n",
    'node_id: "a\\tb\\u00e9"\nshutdown_timeout_s: 1e3\n',
)
TOKENS = (
    *("{", "}", "[", "]", ": ", "- ", "? ", ", ", "\n", "\n  ", "\t", "#", "&a ", "*a", "<<: ", "---"),
    *("...", "|\n", ">", "!!binary ", "!!timestamp ", "!!int ", "!!set ", "!!python/name:os.system "),
    *("!<x> ", "%YAML 9", "2024-99-99", "2024-01-01", "0b_", "0x", "1_000", "1e999", ".inf", ".nan", "-1"),
    *("0o9", "1:99", "null", "'", '"', "\\", '"\\ud800"', '"\\0"', "\0", "\x07", "\ufeff", "\x85", "é"),
    *("9" * 5_000, "yes", "off", "~", "mqtt.port: 1", "mqtt: ", "port: ", "topics: ", "filter: ", "a/+#"),
    *("$share/g/a", "[" * 500, "{a: " * 500),
)


@pytest.mark.parametrize(
    "text",
    [
        *("mqtt: [", "[" * 500, "mqtt: {port: " * 300, "*a", "&a [*a]", "a: &a\n <<: *a", "? [a]\n: b"),
        *("host: !!int", "host: !!timestamp x", "host: 2024-99-99", "host: 0b_", "host: !!binary x"),
        *("ring: {messages: " + "9" * 5_000 + "}", "ring: {total_bytes: '" + "9" * 5_000 + "'}"),
        *('mqtt: {port: "\\ud800"}', 'topics: [{filter: "\\ud800"}]', 'log: {capture: ["\\0"]}'),
        "host: !!python/name:os.system",
    ],
    ids=lambda text: text[:24],
)
def test_what_yaml_itself_stumbles_over_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "penstock.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidConfig):
        load(file)


@pytest.mark.parametrize("text", ["9" * 5_000, "9" * 5_000 + "k", "[" * 5_000])
@pytest.mark.parametrize("key", ["ring.total_bytes", "mqtt.port", "log.capture", "shutdown_timeout_s"])
def test_variables_without_measure_are_refused(key: str, text: str) -> None:
    with pytest.raises(InvalidConfig):
        load(environ={variable_of(key): text})


def test_files_are_understood_or_refused(dice: Random, scale: int, tmp_path: Path) -> None:
    file, count = tmp_path / "penstock.yaml", 250 if scale == 1 else 20_000

    def make(dice: Random) -> bytes:
        text = damaged_text(dice.choice(SAMPLES), dice, TOKENS).encode(errors="surrogatepass")
        return damaged(text, dice) if dice.random() < 0.2 else text

    def parse(data: bytes) -> None:
        file.write_bytes(data)
        load(file)

    # Brackets in brackets cost yaml itself steps by the square of their depth.
    tally = judge(parse, make, dice, count, steps_per_unit=20_000, error=InvalidConfig)
    assert tally.taken > count // 50 and tally.refused > count // 10


def test_variables_are_understood_or_refused(dice: Random, scale: int) -> None:
    names, count = list(known_keys()), 1_500 if scale == 1 else 50_000
    good = (
        "1",
        "on",
        "off",
        "50M",
        "0.5",
        "drop-oldest",
        '["a", "b"]',
        '[{"filter": "a"}]',
        "a,b",
        "127.0.0.1",
    )

    def parse(text: str) -> None:
        load(environ={variable_of(dice.choice(names)): text})

    def make(dice: Random) -> str:
        text = dice.choice(good)
        return damaged_text(text, dice, TOKENS) if dice.random() < 0.7 else text

    tally = judge(parse, make, dice, count, steps_per_unit=1_000, error=InvalidConfig)
    assert tally.taken > count // 50 and tally.refused > count // 10
