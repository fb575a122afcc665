"""The alert rules: promtool agrees with them, each one fires when it should, and each leads to a page."""

import re
import subprocess
from typing import Any

import pytest

from tests.deploy.files import DEPLOY, ROOT, anchors_of, read, read_yaml

FOLDER = DEPLOY / "prometheus"
[GROUP] = read_yaml(FOLDER / "alerts.yml")["groups"]
ALERTS = [rule for rule in GROUP["rules"] if "alert" in rule]
CASES: list[dict[str, Any]] = read_yaml(FOLDER / "alerts_test.yml")["tests"]
MEMORY_LIMIT = "4 * 1024 * 1024 * 1024"


def promtool(*words: str) -> str:
    done = subprocess.run(
        ["promtool", *words], cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_finds_no_mistake_in_the_configuration_and_its_rules() -> None:
    assert f"{len(GROUP['rules'])} rules found" in promtool("check", "config", "prometheus.yml")


def test_every_alert_fires_when_it_should_and_not_before() -> None:
    assert "SUCCESS" in promtool("test", "rules", "alerts_test.yml")


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_has_a_case_where_it_fires_and_one_where_it_just_does_not(alert: dict[str, Any]) -> None:
    [case] = [each for each in CASES if each["name"] == alert["alert"]]
    series = [each["series"] for each in case["input_series"]]
    assert {re.findall(r'instance="(\w+)"', each)[0] for each in series} == {"bad", "good"}
    expected = [sample["labels"] for test in case["promql_expr_test"] for sample in test["exp_samples"]]
    assert any(f'alertname="{alert["alert"]}"' in labels for labels in expected)
    assert all('instance="bad"' in labels for labels in expected)
    if "for" in alert:
        assert any(not test["exp_samples"] for test in case["promql_expr_test"]), "and one where it waits"


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_says_what_it_is_what_to_do_and_where_to_read_on(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in {"warning", "critical"}
    assert set(alert["annotations"]) == {"summary", "description", "runbook"}
    assert "$labels.instance }}" in alert["annotations"]["summary"]
    page, _, anchor = alert["annotations"]["runbook"].partition("#")
    assert anchor in anchors_of(ROOT / page)


def test_the_memory_limit_is_that_of_the_files_that_set_one() -> None:
    [rule] = [rule for rule in GROUP["rules"] if rule.get("record") == "penstock:memory_limit_bytes"]
    assert rule["expr"] == f"vector({MEMORY_LIMIT})"
    assert "MemoryMax=4G\n" in read(DEPLOY / "systemd" / "penstock.service")
    assert read_yaml(DEPLOY / "compose" / "compose.yaml")["services"]["penstock"]["mem_limit"] == "4g"
    assert "limits: {memory: 4Gi}" in read(DEPLOY / "kubernetes" / "base" / "server.yaml")
