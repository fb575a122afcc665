"""Prometheus understands the server, and every alert and every panel is about figures that it has."""

import asyncio
import json
import re
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.dashboard.style import LEVELS, OUTCOMES, PERCENTILES
from tests.deploy.files import DEPLOY, read, read_yaml
from tests.deploy.watching import HOST, OF_LOAD, Prometheus, alerts_of, watching, work_until_seen
from tests.support.servers import StartServer

ALERTS: list[dict[str, Any]] = read_yaml(DEPLOY / "prometheus" / "alerts.yml")["groups"][0]["rules"]
BOARD: dict[str, Any] = json.loads(read(DEPLOY / "grafana" / "dashboards" / "penstock.json"))
DOORS = {"mqtt": "#8b5cc7", "sidecar": "#d6569a", "web": "#e08a1e", "streams": "#2aa5c4"}
"""Colours of the doors, the same in every panel."""
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
NAME = re.compile(r"\b(?:penstock|process)_\w+")
LABEL = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')
GROUPING = re.compile(r"\bby \(([^)]*)\)")
OF_PROMETHEUS = {"job", "instance", "le"}
"""Labels that the server does not give."""


class Seen(NamedTuple):
    """A Prometheus that has watched a busy server, and when that was."""

    prometheus: Prometheus
    at: float
    metrics: dict[str, set[str]]
    """The labels of each sample, by its name, as the server told them."""


@pytest.fixture(scope="module")
def seen(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("watching")
    server = start_server(
        {"http": {"port": 0}, "data_dir": str(folder / "data"), "outbox": {"messages": 50, "bytes": "1M"}}
    )
    with watching(server, folder) as prometheus:
        asyncio.run(work_until_seen(server, prometheus))
        at = time.time()
        text = httpx.get(f"http://{HOST}:{server.port_of('http')}/metrics/prometheus", timeout=30).text
        yield Seen(prometheus, at, labels_in(text))


def labels_in(text: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def expressions() -> Iterator[Any]:
    for rule in ALERTS:
        yield pytest.param(rule["expr"], id=rule.get("alert", rule.get("record")))
    for panel in PANELS:
        for target in panel["targets"]:
            yield pytest.param(for_prometheus(target["expr"]), id=f"{panel['title']} {target['refId']}")


def for_prometheus(expression: str) -> str:
    """What Grafana makes of an expression before it asks."""
    return expression.replace("$__rate_interval", "1m").replace("$instance", ".*")


EXPRESSIONS = list(expressions())


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_names_figures_and_labels_that_the_server_tells(expression: str, seen: Seen) -> None:
    names = set(NAME.findall(expression)) - {"penstock"}
    assert names <= set(seen.metrics), "the server has no such figure"
    labels = set(LABEL.findall(expression))
    labels |= {label.strip() for group in GROUPING.findall(expression) for label in group.split(",")}
    known = {label for name in names for label in seen.metrics[name]}
    assert labels <= known | OF_PROMETHEUS


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_prometheus_evaluates_an_expression(expression: str, seen: Seen) -> None:
    seen.prometheus.query(expression, seen.at)


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_shows_something_under_load(panel: dict[str, Any], seen: Seen) -> None:
    for target in panel["targets"]:
        found = seen.prometheus.query(for_prometheus(target["expr"]), seen.at)
        assert found, target["expr"]
        assert all(each["value"][1] != "NaN" for each in found), target["expr"]


def test_a_door_a_level_and_a_percentile_have_the_colour_they_have_on_the_dashboard() -> None:
    known = {*LEVELS.values(), *OUTCOMES.values()}
    names = {**DOORS, **{name: colour for name, colour in PERCENTILES.items() if name.startswith("p")}}
    for panel in PANELS:
        config = panel["fieldConfig"]
        assert {step["color"] for step in config["defaults"]["thresholds"]["steps"]} <= known
        fixed = {
            override["matcher"]["options"]: each["value"]["fixedColor"]
            for override in config["overrides"]
            for each in override["properties"]
            if each["id"] == "color"
        }
        assert all(fixed[name] == names[name] for name in fixed.keys() & names)
        assert panel["title"].endswith(", by door") <= (fixed.keys() >= DOORS.keys())


def test_prometheus_reads_the_server_without_complaint(seen: Seen) -> None:
    [target] = seen.prometheus.ask("targets")["activeTargets"]
    assert (target["health"], target["lastError"], target["labels"]["job"]) == ("up", "", "penstock")


def test_every_alert_is_loaded_and_works(seen: Seen) -> None:
    [group] = seen.prometheus.ask("rules")["groups"]
    told = {rule["name"]: (rule["health"], rule.get("lastError", "")) for rule in group["rules"]}
    assert told == dict.fromkeys([rule.get("alert", rule.get("record")) for rule in ALERTS], ("ok", ""))


def test_a_subscriber_that_does_not_read_is_about_to_be_told(seen: Seen) -> None:
    assert alerts_of(seen.prometheus, seen.at) >= OF_LOAD


def test_the_servers_that_can_be_chosen_are_those_that_are_watched(seen: Seen) -> None:
    [variable] = [each for each in BOARD["templating"]["list"] if each["name"] == "instance"]
    found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
    assert found is not None
    [answer] = seen.prometheus.query(found[1], seen.at)
    assert answer["metric"][found[2]].startswith(f"{HOST}:")
