"""Scenarios: the load of each, its figures, and their goals.

Payloads are 64 bytes (128 over gRPC), topics 27 bytes and QoS is 0 unless stated. Scenarios called latency or
match are open loops; idle and disconnects have no traffic. All others are closed loops: the generator keeps a
window of undelivered messages, so no broker has to drop any. Scenarios without a load are in `bench.trials`.
"""

import operator
from collections.abc import Callable, Collection
from typing import Literal

from msgspec import Struct

from bench.errors import WrongOption
from bench.measurement import Metric

BASELINE = "mosquitto-debian"
DURABLE_BASELINE = "mosquitto-debian-saving"
WEBSOCKET_BASELINE = "nchan"
GRPC_BASELINE = "grpcpp"
STAND_INS = {
    BASELINE: "mosquitto",
    DURABLE_BASELINE: "mosquitto-saving",
    "nats": "nats-debian",
}
"""Other version of a peer: ratios and goals refer to it in a bench without the first.

The goals were set by measuring mosquitto 2.0.11, Debian's.
"""
CONNECTIONS = 10_000
IDLE_TOPICS = 1_000

Sign = Literal[">=", "<=", "<"]
_COMPARE: dict[Sign, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "<": operator.lt,
}


BROKER_SCHEMES = frozenset({"mqtt", "nats", "redis"})
MQTT_ONLY = frozenset({"mqtt"})
WEBSOCKET_SCHEMES = frozenset({"http", "nchan"})
PENSTOCK_HTTP_ONLY = frozenset({"http"})
GRPC_SCHEMES = frozenset({"grpc", "nexusd"})
PENSTOCK_GRPC_ONLY = frozenset({"grpc"})


class Contest(Struct, frozen=True):
    """Group of scenarios with the same subject, baseline and load generator."""

    title: str
    subject: str
    baseline: str | None = None
    generator: str = "pubsub.c"
    """Its source file; trials need none."""
    is_on_disk: bool = False


PEERS = Contest(f"Penstock and its peers (in brackets: ratio to {BASELINE})", "penstock", BASELINE)
DURABLE = Contest(
    f"With a data directory (in brackets: ratio to {DURABLE_BASELINE}; penstock: in memory)",
    "penstock-fsync",
    DURABLE_BASELINE,
    is_on_disk=True,
)
WEBSOCKETS = Contest(
    f"WebSockets (in brackets: ratio to {WEBSOCKET_BASELINE})",
    "penstock-http",
    WEBSOCKET_BASELINE,
    "websockets.c",
)
STREAMS = Contest("Streams", "penstock-http", generator="streams.c")
GRPC = Contest(
    f"gRPC (in brackets: ratio to {GRPC_BASELINE}, a small daemon on grpc++)",
    "penstock-grpc",
    GRPC_BASELINE,
    "grpc.cc",
)
LOG = Contest("The log and offline queues", "penstock", is_on_disk=True)
CONTESTS = (PEERS, WEBSOCKETS, STREAMS, GRPC, DURABLE, LOG)


class Goal(Struct, frozen=True):
    """Bound for the subject's figure, or for its ratio to another broker's."""

    sign: Sign
    limit: float
    against: str | None = BASELINE

    def holds(self, value: float) -> bool:
        """True if a ratio or figure is within the bound."""
        return _COMPARE[self.sign](value, self.limit)


class Figure(Struct, frozen=True):
    """One number of a scenario, shown as a row."""

    metric: Metric
    label: str
    goals: tuple[Goal, ...] = ()


class Scenario(Struct, frozen=True):
    """A load, the brokers that can take it, and its figures."""

    name: str
    summary: str
    load: tuple[str, ...]
    figures: tuple[Figure, ...]
    contest: Contest = PEERS
    schemes: frozenset[str] = BROKER_SCHEMES
    is_fresh: bool = False
    """Needs a newly started broker."""
    is_teardown: bool = False
    """Measures what happens after all connections are closed."""
    is_resting: bool = False
    """Measures the broker while its clients are idle."""
    is_spinning: bool = False
    """The generator never sleeps, so its CPU share does not show a limit."""


def _rate(
    name: str, summary: str, load: str, *goals: Goal, schemes: frozenset[str] = BROKER_SCHEMES
) -> Scenario:
    figure = Figure("delivered_per_s", "deliveries/s", goals)
    return Scenario(name, summary, tuple(load.split()), (figure,), schemes=schemes)


def _websocket(
    name: str,
    summary: str,
    load: str,
    figure: Figure,
    *,
    schemes: frozenset[str] = WEBSOCKET_SCHEMES,
    is_resting: bool = False,
    is_spinning: bool = False,
) -> Scenario:
    return Scenario(
        name,
        summary,
        tuple(load.split()),
        (figure,),
        WEBSOCKETS,
        schemes,
        is_resting=is_resting,
        is_spinning=is_spinning,
    )


def _stream(name: str, summary: str, load: str, figure: Figure, *, is_spinning: bool = False) -> Scenario:
    return Scenario(
        name, summary, tuple(load.split()), (figure,), STREAMS, PENSTOCK_HTTP_ONLY, is_spinning=is_spinning
    )


def _grpc(
    name: str,
    summary: str,
    load: str,
    figure: Figure,
    *,
    schemes: frozenset[str] = GRPC_SCHEMES,
    is_spinning: bool = False,
) -> Scenario:
    load = f"--payload 128 {load}"
    return Scenario(name, summary, tuple(load.split()), (figure,), GRPC, schemes, is_spinning=is_spinning)


def _durable(name: str, summary: str, load: str, *goals: Goal) -> Scenario:
    figure = Figure("acked_per_s", "acknowledged/s", goals)
    load = f"--qos 1 --stay 1 {load}"
    return Scenario(name, summary, tuple(load.split()), (figure,), DURABLE, MQTT_ONLY, is_fresh=True)


def _trial(name: str, summary: str, *figures: Figure) -> Scenario:
    return Scenario(name, summary, (), figures, LOG)


_TABLE = (
    _rate(
        "mixed",
        "one publisher over 200 topics, one wildcard subscriber",
        "--topics 200",
        Goal(">=", 5),
        Goal(">=", 0.7, "nats"),
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
            Figure("bytes_per_connection", "bytes/connection", (Goal("<=", 4096, None),)),
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
    _websocket(
        "ws_fanout",
        "1 to 100 subscribers, 300 in flight",
        "--subs 100 --window 300",
        Figure("delivered_per_s", "deliveries/s", (Goal(">=", 10, WEBSOCKET_BASELINE),)),
    ),
    _websocket(
        "ws_fanout_w1",
        "1 to 100 subscribers, one in flight",
        "--subs 100 --window 1",
        Figure("delivered_per_s", "deliveries/s"),
    ),
    _websocket(
        "ws_one2one",
        "1:1, 1,000 in flight; nchan cannot number so many messages in a second",
        "--window 1000",
        Figure("delivered_per_s", "deliveries/s", (Goal(">=", 40_000, None),)),
        schemes=PENSTOCK_HTTP_ONLY,
    ),
    _websocket(
        "ws_latency",
        "500 messages/s, open loop, from the scheduled send time",
        "--rate 500",
        Figure("p50_us", "p50 us", (Goal("<", 1_000, None),)),
        is_spinning=True,
    ),
    _websocket(
        "ws_idle",
        "1,000 topics with a subscriber each, after one message",
        f"--idle {IDLE_TOPICS} --hold 1",
        Figure("resting_cpu", "cores used at rest", (Goal("<", 0.01, None),)),
        is_resting=True,
    ),
    _stream(
        "streams_send",
        "16 connections that send to a stream each",
        "--senders 16",
        Figure("acked_per_s", "sends/s", (Goal(">=", 22_000, None),)),
    ),
    _stream(
        "streams_pairs",
        "32 streams, each with a sender and a receiver",
        "--pairs 32",
        Figure("operations_per_s", "sends and receives/s", (Goal(">=", 22_000, None),)),
    ),
    _stream(
        "streams_match",
        "500 messages/s to a waiting receiver, from the scheduled send time",
        "--rate 500",
        Figure("p50_us", "p50 us", (Goal("<=", 500, None),)),
        is_spinning=True,
    ),
    _grpc(
        "grpc_unary",
        "16 callers on one channel that publish, no subscribers",
        "--callers 16",
        Figure("acked_per_s", "calls/s", (Goal(">=", 12_000, None),)),
    ),
    _grpc(
        "grpc_one2one",
        "16 callers on one channel, one subscriber",
        "--callers 16 --subs 1",
        Figure("delivered_per_s", "deliveries/s", (Goal(">=", 10_000, None),)),
    ),
    _grpc(
        "grpc_fanout",
        "16 callers on one channel, 20 subscribers",
        "--callers 16 --subs 20",
        Figure("delivered_per_s", "deliveries/s", (Goal(">=", 85_000, None),)),
    ),
    _grpc(
        "grpc_latency",
        "500 messages/s to a subscriber, open loop, from the scheduled send time",
        "--subs 1 --rate 500",
        Figure("p50_us", "p50 us", (Goal("<=", 450, None),)),
        is_spinning=True,
    ),
    _grpc(
        "grpc_v1_one2one",
        "1:1 over penstock.v1, batches of 256 messages, about 8,000 in flight",
        "--subs 1 --batch 256 --window 8192",
        Figure("delivered_per_s", "deliveries/s", (Goal(">=", 500_000, None),)),
        schemes=PENSTOCK_GRPC_ONLY,
    ),
    _durable(
        "durable",
        "50 publishers, QoS 1, 100 in flight each, each with a subscriber with a persistent session",
        "--pubs 50 --window 5000 --pairs 1",
        Goal(">=", 0.5, "penstock"),
        Goal(">=", 5, DURABLE_BASELINE),
    ),
    _durable(
        "durable_alone",
        "the same publishers and no subscribers, so mosquitto has nothing to save",
        "--pubs 50 --window 5000 --subs 0",
        Goal(">=", 0.5, "penstock"),
    ),
    _durable("durable_one", "one publisher, 100 in flight, one such subscriber", "--window 100"),
    _trial(
        "log_read",
        "the log as Arrow IPC streams, 100-byte payloads, 100 topics",
        Figure("rows_per_s", "rows/s per core", (Goal(">=", 1_000_000, None),)),
        Figure("tail_rows_per_s", "rows/s per core, not sealed"),
    ),
    _trial(
        "log_http",
        "the same over HTTP, by a client that discards it",
        Figure("rows_per_s", "rows/s per core", (Goal(">=", 1_000_000, None),)),
        Figure("read_rows_per_s", "rows/s"),
    ),
    _trial(
        "log_http_load",
        "`mixed` while the log is read over HTTP at full speed, and without a reader",
        Figure("load_share", "deliveries, with : without", (Goal(">=", 0.5, None),)),
        Figure("read_rows_per_s", "rows/s meanwhile"),
    ),
    _trial(
        "log_start",
        "a server with 10,000,000 messages in its log, and a first read of the last 1,000",
        Figure("start_s", "s to the first CONNACK", (Goal("<", 3, None),)),
        Figure("tail_ms", "ms to read the tail", (Goal("<", 50, None),)),
    ),
    _trial(
        "owed",
        "100,000 offline sessions with 100 queued messages each; a tenth of them reconnect at once",
        Figure("bytes_per_owed", "bytes/delivery", (Goal("<=", 16, None),)),
        Figure("return_s", "s until they have everything", (Goal("<=", 15, None),)),
    ),
    _trial(
        "restart",
        "kill -9 of a server with 100,000 messages queued for an offline session",
        Figure("start_s", "s to the first CONNACK", (Goal("<", 1, None),)),
    ),
)

SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in _TABLE}

# Large figures come from deep batches, so `quick` includes scenarios without any batching.
QUICK = ("mixed", "qos1", "pingpong", "fanout_w1", "fanout", "latency")

GOALS = (
    "mixed",
    "one2one",
    "fanout",
    "fanin",
    "qos1",
    "unbatched",
    "pingpong",
    "latency",
    "one2one_1k",
    "one2one_16k",
    "idle",
    "durable",
)
"""Scenarios that a change of the hot path is judged by."""
GROUPS = {"quick": QUICK, "goals": GOALS, "all": tuple(SCENARIOS)}


def present(name: str | None, brokers: Collection[str]) -> str | None:
    """Broker of this name, or its stand-in, if one of them is among the brokers."""
    candidates = () if name is None else (name, STAND_INS.get(name, name))
    return next((candidate for candidate in candidates if candidate in brokers), None)


def choose_scenarios(names: str) -> list[Scenario]:
    """Scenarios of a comma list, or of a group; those with fresh brokers or a disk come last.

    Raises:
        WrongOption: there is no such scenario.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if len(wanted) == 1 and wanted[0] in GROUPS:
        wanted = list(GROUPS[wanted[0]])
    unknown = [name for name in wanted if name not in SCENARIOS]
    if unknown or not wanted:
        known = ", ".join([*GROUPS, *SCENARIOS])
        raise WrongOption(f"unknown scenario {', '.join(unknown) or repr(names)}; known are {known}")
    chosen = [SCENARIOS[name] for name in dict.fromkeys(wanted)]
    return sorted(chosen, key=lambda scenario: (CONTESTS.index(scenario.contest), scenario.is_fresh))
