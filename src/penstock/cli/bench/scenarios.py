"""What is measured: the loads, the figures each one yields, and the goals of the first release.

Payloads are 64 bytes, topics 27 and QoS is 0 unless said. All but `latency`, `idle` and `disconnects`
are closed loops: the generator keeps a window of undelivered messages, so nothing has to be dropped.
"""

import operator
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from penstock.cli.bench.measurement import Metric
from penstock.cli.bench.problems import WrongOption

BASELINE = "mosquitto"
CONNECTIONS = 10_000

Sign = Literal[">=", "<=", "<"]
HOLDS: dict[Sign, Callable[[float, float], bool]] = {">=": operator.ge, "<=": operator.le, "<": operator.lt}


ANY = frozenset({"mqtt", "nats", "redis"})
MQTT_ONLY = frozenset({"mqtt"})


class Goal(Struct, frozen=True):
    """A bound on Penstock's figure: on its ratio to another broker's, or on the figure itself."""

    sign: Sign
    limit: float
    against: str | None = BASELINE

    def holds(self, value: float) -> bool:
        """Whether a ratio or figure keeps the bound."""
        return HOLDS[self.sign](value, self.limit)


class Figure(Struct, frozen=True):
    """One number of a scenario worth a row of its own."""

    metric: Metric
    label: str
    goals: tuple[Goal, ...] = ()


class Scenario(Struct, frozen=True):
    """A load, what it asks of a broker, and the figures it yields."""

    name: str
    summary: str
    load: tuple[str, ...]
    figures: tuple[Figure, ...]
    schemes: frozenset[str] = ANY
    is_fresh: bool = False
    """Needs a broker process that has done nothing yet."""
    is_teardown: bool = False
    """What counts begins when the connections end."""
    is_spinning: bool = False
    """The generator never sleeps, so its CPU share says nothing about a limit."""


def _rate(name: str, summary: str, load: str, *goals: Goal, schemes: frozenset[str] = ANY) -> Scenario:
    figure = Figure("delivered_per_s", "deliveries/s", goals)
    return Scenario(name, summary, tuple(load.split()), (figure,), schemes)


_TABLE = (
    _rate(
        "mixed",
        "one publisher over 200 topics, one wildcard subscriber",
        "--topics 200",
        Goal(">=", 5),
        Goal(">=", 0.25, "nats"),
    ),
    _rate(
        "qos1",
        "1:1, QoS 1 both ways, 100 in flight",
        "--qos 1 --window 100",
        Goal(">=", 4),
        schemes=MQTT_ONLY,
    ),
    _rate("pingpong", "1:1, one in flight", "--window 1", Goal(">=", 0.7)),
    _rate("fanout_w1", "1 to 100 subscribers, one in flight", "--subs 100 --window 1", Goal(">=", 0.9)),
    _rate("fanout_w10", "1 to 100 subscribers, 10 in flight", "--subs 100 --window 10", Goal(">=", 5)),
    _rate("unbatched", "50 publishers, about one in flight each", "--pubs 50 --window 50", Goal(">=", 1.3)),
    _rate("fanout", "1 to 100 subscribers, about 900 in flight", "--subs 100", Goal(">=", 100)),
    _rate("one2one", "1:1, 10,000 in flight", "", Goal(">=", 10)),
    _rate("fanin", "50 publishers, one wildcard subscriber, 10,000 in flight", "--pubs 50", Goal(">=", 10)),
    _rate("one2one_1k", "1:1, 1 KiB payloads", "--payload 1024", Goal(">=", 7)),
    _rate("one2one_16k", "1:1, 16 KiB payloads", "--payload 16384", Goal(">=", 1.3)),
    Scenario(
        "latency",
        "1,000 messages/s, open loop, from the scheduled send time",
        ("--rate", "1000"),
        (Figure("p50_us", "p50 us", (Goal("<=", 1.3),)),),
        is_spinning=True,
    ),
    Scenario(
        "idle",
        "10,000 connections with one subscription each",
        ("--idle", str(CONNECTIONS), "--hold", "1"),
        (
            Figure("bytes_per_connection", "bytes/connection", (Goal("<=", 6144, None),)),
            Figure("connects_per_s", "connects/s", (Goal(">=", 0.4),)),
        ),
        schemes=MQTT_ONLY,
        is_fresh=True,
    ),
    Scenario(
        "disconnects",
        "the same 10,000 connections closed at once",
        ("--idle", str(CONNECTIONS), "--hold", "1"),
        (Figure("disconnect_cpu_s", "broker CPU s", (Goal("<", 1, None),)),),
        schemes=MQTT_ONLY,
        is_fresh=True,
        is_teardown=True,
    ),
)

SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in _TABLE}

# The large numbers come from deep batches, so a quick look shows the rows without any batching too.
QUICK = ("mixed", "qos1", "pingpong", "fanout_w1", "fanout", "latency")


def choose(names: str) -> list[Scenario]:
    """The scenarios of a comma list, `all` or `quick`; those that need fresh brokers come last."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if wanted == ["all"]:
        wanted = list(SCENARIOS)
    elif wanted == ["quick"]:
        wanted = list(QUICK)
    unknown = [name for name in wanted if name not in SCENARIOS]
    if unknown or not wanted:
        known = ", ".join(SCENARIOS)
        raise WrongOption(
            f"unknown scenario {', '.join(unknown) or repr(names)}; known are all, quick, {known}"
        )
    chosen = [SCENARIOS[name] for name in dict.fromkeys(wanted)]
    return sorted(chosen, key=lambda scenario: scenario.is_fresh)
