"""Scenarios: their goals, and the choice by name."""

import pytest

from bench.errors import WrongOption
from bench.scenarios import GOALS, QUICK, SCENARIOS, choose_scenarios


def test_every_figure_has_its_goal() -> None:
    goals = {
        f"{name} {figure.label}": [(goal.sign, goal.limit, goal.against) for goal in figure.goals]
        for name, scenario in SCENARIOS.items()
        for figure in scenario.figures
    }
    assert goals == {
        "mixed deliveries/s": [(">=", 5, "mosquitto-debian"), (">=", 0.7, "nats")],
        "qos1 deliveries/s": [(">=", 4, "mosquitto-debian")],
        "pingpong deliveries/s": [(">=", 0.7, "mosquitto-debian")],
        "fanout_w1 deliveries/s": [(">=", 0.9, "mosquitto-debian")],
        "fanout_w10 deliveries/s": [(">=", 5, "mosquitto-debian")],
        "unbatched deliveries/s": [(">=", 1.3, "mosquitto-debian")],
        "fanout deliveries/s": [(">=", 100, "mosquitto-debian")],
        "one2one deliveries/s": [(">=", 10, "mosquitto-debian")],
        "fanin deliveries/s": [(">=", 10, "mosquitto-debian")],
        "one2one_1k deliveries/s": [(">=", 7, "mosquitto-debian")],
        "one2one_16k deliveries/s": [(">=", 1.3, "mosquitto-debian")],
        "latency p50 us": [("<=", 1.3, "mosquitto-debian")],
        "idle bytes/connection": [("<=", 4096, None)],
        "idle connects/s": [(">=", 0.4, "mosquitto-debian")],
        "disconnects broker CPU s": [("<", 1, None)],
        "ws_fanout deliveries/s": [(">=", 10, "nchan")],
        "ws_fanout_w1 deliveries/s": [],
        "ws_one2one deliveries/s": [(">=", 40_000, None)],
        "ws_latency p50 us": [("<", 1_000, None)],
        "ws_idle cores used at rest": [("<", 0.01, None)],
        "streams_send sends/s": [(">=", 22_000, None)],
        "streams_pairs sends and receives/s": [(">=", 22_000, None)],
        "streams_match p50 us": [("<=", 500, None)],
        "grpc_unary calls/s": [(">=", 12_000, None)],
        "grpc_one2one deliveries/s": [(">=", 10_000, None)],
        "grpc_fanout deliveries/s": [(">=", 85_000, None)],
        "grpc_latency p50 us": [("<=", 450, None)],
        "grpc_v1_one2one deliveries/s": [(">=", 500_000, None)],
        "durable acknowledged/s": [(">=", 0.5, "penstock"), (">=", 5, "mosquitto-debian-saving")],
        "durable_alone acknowledged/s": [(">=", 0.5, "penstock")],
        "durable_one acknowledged/s": [],
        "log_read rows/s per core": [(">=", 1_000_000, None)],
        "log_read rows/s per core, not sealed": [],
        "log_http rows/s per core": [(">=", 1_000_000, None)],
        "log_http rows/s": [],
        "log_http_load deliveries, with : without": [(">=", 0.5, None)],
        "log_http_load rows/s meanwhile": [],
        "log_start s to the first CONNACK": [("<", 3, None)],
        "log_start ms to read the tail": [("<", 50, None)],
        "owed bytes/delivery": [("<=", 16, None)],
        "owed s until they have everything": [("<=", 15, None)],
        "restart s to the first CONNACK": [("<", 1, None)],
    }


def test_scenarios_that_need_fresh_brokers_or_a_disk_come_last() -> None:
    assert [
        scenario.name for scenario in choose_scenarios("restart,durable,disconnects,mixed,idle,fanout,mixed")
    ] == [
        "mixed",
        "fanout",
        "disconnects",
        "idle",
        "durable",
        "restart",
    ]


def test_all_and_quick_name_many_scenarios() -> None:
    assert [scenario.name for scenario in choose_scenarios("all")] == list(SCENARIOS)
    assert [scenario.name for scenario in choose_scenarios("quick")] == list(QUICK)


def test_goals_are_scenarios_that_each_have_a_goal_and_fresh_brokers_come_last() -> None:
    chosen = choose_scenarios("goals")
    assert {scenario.name for scenario in chosen} == set(GOALS)
    assert [scenario.name for scenario in chosen][-2:] == ["idle", "durable"]
    assert all(any(figure.goals for figure in scenario.figures) for scenario in chosen)


@pytest.mark.parametrize("names", ["", "mixed,nonsense", "all,mixed"])
def test_unknown_scenarios_are_refused_by_name(names: str) -> None:
    with pytest.raises(WrongOption, match="known are quick, goals, all, mixed"):
        choose_scenarios(names)
