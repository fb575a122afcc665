"""What is measured: the loads, the figures each one yields, and their goals.

Payloads are 64 bytes (128 over gRPC), topics 27 and QoS is 0 unless said. Those called latency, match, idle
and disconnects are open loops or none. All others are closed: the generator keeps a window of undelivered
messages, so nothing has to be dropped. Those without a load are not about traffic; the folder `trials` does
them.
"""

import operator
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from penstock.cli.bench.measurement import Metric
from penstock.cli.bench.problems import WrongOption

BASELINE = "mosquitto"
SAVING_BASELINE = "mosquitto-saving"
SOCKET_BASELINE = "nchan"
SIDECAR_BASELINE = "grpcpp"
CONNECTIONS = 10_000
IDLE_TOPICS = 1_000

Sign = Literal[">=", "<=", "<"]
HOLDS: dict[Sign, Callable[[float, float], bool]] = {">=": operator.ge, "<=": operator.le, "<": operator.lt}


ANY = frozenset({"mqtt", "nats", "redis"})
MQTT_ONLY = frozenset({"mqtt"})
SOCKETS_OF_ANY = frozenset({"http", "nchan"})
HTTP_ONLY = frozenset({"http"})
SIDECARS = frozenset({"grpc", "nexusd"})
GRPC_ONLY = frozenset({"grpc"})


class Contest(Struct, frozen=True):
    """What some scenarios have in common: who is judged, beside whom, and who makes the load."""

    title: str
    subject: str
    baseline: str | None = None
    generator: str = "load"
    """The program, without its ending; the trials need none."""
    is_on_disk: bool = False


PEERS = Contest(f"Penstock and its peers (in brackets: ratio to {BASELINE})", "penstock", BASELINE)
SAVING = Contest(
    f"With a data directory (in brackets: ratio to {SAVING_BASELINE}; penstock: in memory)",
    "penstock-fsync",
    SAVING_BASELINE,
    is_on_disk=True,
)
SOCKETS = Contest(
    f"WebSockets (in brackets: ratio to {SOCKET_BASELINE})", "penstock-http", SOCKET_BASELINE, "sockets"
)
STREAMS = Contest("Streams", "penstock-http", generator="streams")
SIDECAR = Contest(
    f"gRPC (in brackets: ratio to {SIDECAR_BASELINE}, a small daemon on grpc++)",
    "penstock-grpc",
    SIDECAR_BASELINE,
    "sidecar",
)
STORED = Contest("The log and what waits in it", "penstock", is_on_disk=True)
CONTESTS = (PEERS, SOCKETS, STREAMS, SIDECAR, SAVING, STORED)


class Goal(Struct, frozen=True):
    """A bound on the subject's figure: on its ratio to another broker's, or on the figure itself."""

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
    contest: Contest = PEERS
    schemes: frozenset[str] = ANY
    is_fresh: bool = False
    """Needs a broker process that has done nothing yet."""
    is_teardown: bool = False
    """What counts begins when the connections end."""
    is_resting: bool = False
    """What counts is what the broker does while nothing happens."""
    is_spinning: bool = False
    """The generator never sleeps, so its CPU share says nothing about a limit."""


def _rate(name: str, summary: str, load: str, *goals: Goal, schemes: frozenset[str] = ANY) -> Scenario:
    figure = Figure("delivered_per_s", "deliveries/s", goals)
    return Scenario(name, summary, tuple(load.split()), (figure,), schemes=schemes)


def _sockets(
    name: str,
    summary: str,
    load: str,
    figure: Figure,
    *,
    schemes: frozenset[str] = SOCKETS_OF_ANY,
    is_resting: bool = False,
    is_spinning: bool = False,
) -> Scenario:
    return Scenario(
        name,
        summary,
        tuple(load.split()),
        (figure,),
        SOCKETS,
        schemes,
        is_resting=is_resting,
        is_spinning=is_spinning,
    )


def _streams(name: str, summary: str, load: str, figure: Figure, *, is_spinning: bool = False) -> Scenario:
    return Scenario(
        name, summary, tuple(load.split()), (figure,), STREAMS, HTTP_ONLY, is_spinning=is_spinning
    )


def _sidecar(
    name: str,
    summary: str,
    load: str,
    figure: Figure,
    *,
    schemes: frozenset[str] = SIDECARS,
    is_spinning: bool = False,
) -> Scenario:
    load = f"--payload 128 {load}"
    return Scenario(name, summary, tuple(load.split()), (figure,), SIDECAR, schemes, is_spinning=is_spinning)


def _saving(name: str, summary: str, load: str, *goals: Goal) -> Scenario:
    figure = Figure("acked_per_s", "acknowledged/s", goals)
    load = f"--qos 1 --stay 1 {load}"
    return Scenario(name, summary, tuple(load.split()), (figure,), SAVING, MQTT_ONLY, is_fresh=True)


def _trial(name: str, summary: str, *figures: Figure) -> Scenario:
    return Scenario(name, summary, (), figures, STORED)


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
    _sockets(
        "ws_fanout",
        "1 to 100 subscribers, 300 in flight",
        "--subs 100 --window 300",
        Figure("delivered_per_s", "deliveries/s", (Goal(">=", 10, SOCKET_BASELINE),)),
    ),
    _sockets(
        "ws_fanout_w1",
        "1 to 100 subscribers, one in flight",
        "--subs 100 --window 1",
        Figure("delivered_per_s", "deliveries/s"),
    ),
    _sockets(
        "ws_one2one",
        "1:1, 1,000 in flight; nchan cannot number so many messages in a second",
        "--window 1000",
        Figure("delivered_per_s", "deliveries/s", (Goal(">=", 40_000, None),)),
        schemes=HTTP_ONLY,
    ),
    _sockets(
        "ws_latency",
        "500 messages/s, open loop, from the scheduled send time",
        "--rate 500",
        Figure("p50_us", "p50 us", (Goal("<", 1_000, None),)),
        is_spinning=True,
    ),
    _sockets(
        "ws_idle",
        "1,000 topics with a subscriber each, after one message",
        f"--idle {IDLE_TOPICS} --hold 1",
        Figure("resting_cpu", "cores used at rest", (Goal("<", 0.01, None),)),
        is_resting=True,
    ),
    _streams(
        "streams_send",
        "16 connections that send to a stream each",
        "--senders 16",
        Figure("acked_per_s", "sends/s", (Goal(">=", 22_000, None),)),
    ),
    _streams(
        "streams_pairs",
        "32 streams, each with one who sends and one who receives",
        "--pairs 32",
        Figure("operations_per_s", "sends and receives/s", (Goal(">=", 22_000, None),)),
    ),
    _streams(
        "streams_match",
        "500 messages/s to a receiver that waits, from the scheduled send time",
        "--rate 500",
        Figure("p50_us", "p50 us", (Goal("<=", 500, None),)),
        is_spinning=True,
    ),
    _sidecar(
        "grpc_unary",
        "16 callers on one channel that publish, nobody who listens",
        "--callers 16",
        Figure("acked_per_s", "calls/s", (Goal(">=", 12_000, None),)),
    ),
    _sidecar(
        "grpc_one2one",
        "16 callers on one channel, one subscriber",
        "--callers 16 --subs 1",
        Figure("delivered_per_s", "deliveries/s", (Goal(">=", 10_000, None),)),
    ),
    _sidecar(
        "grpc_fanout",
        "16 callers on one channel, 20 subscribers",
        "--callers 16 --subs 20",
        Figure("delivered_per_s", "deliveries/s", (Goal(">=", 85_000, None),)),
    ),
    _sidecar(
        "grpc_latency",
        "500 messages/s to a subscriber, open loop, from the scheduled send time",
        "--subs 1 --rate 500",
        Figure("p50_us", "p50 us", (Goal("<=", 450, None),)),
        is_spinning=True,
    ),
    _sidecar(
        "grpc_v1_one2one",
        "1:1 over penstock.v1, batches of 256 messages, about 8,000 in flight",
        "--subs 1 --batch 256 --window 8192",
        Figure("delivered_per_s", "deliveries/s", (Goal(">=", 500_000, None),)),
        schemes=GRPC_ONLY,
    ),
    _saving(
        "durable",
        "50 publishers, QoS 1, 100 in flight each, each with a subscriber whose session stays",
        "--pubs 50 --window 5000 --pairs 1",
        Goal(">=", 0.5, "penstock"),
        Goal(">=", 5, SAVING_BASELINE),
    ),
    _saving(
        "durable_alone",
        "the same publishers and no subscribers, so that mosquitto has nothing to save",
        "--pubs 50 --window 5000 --subs 0",
        Goal(">=", 0.5, "penstock"),
    ),
    _saving("durable_one", "one publisher, 100 in flight, one such subscriber", "--window 100"),
    _trial(
        "log_read",
        "the log as Arrow IPC streams, 100-byte payloads, 100 topics",
        Figure("rows_per_s", "rows/s per core", (Goal(">=", 1_000_000, None),)),
        Figure("tail_rows_per_s", "rows/s per core, not sealed"),
    ),
    _trial(
        "log_http",
        "the same over HTTP, by a client that throws it away",
        Figure("rows_per_s", "rows/s per core", (Goal(">=", 1_000_000, None),)),
        Figure("read_rows_per_s", "rows/s"),
    ),
    _trial(
        "log_http_load",
        "`mixed` on a server whose log is read over HTTP as fast as it goes, and on the same without",
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
        "100,000 absent sessions are owed 100 messages each; a tenth of them come back at once",
        Figure("bytes_per_owed", "bytes/delivery", (Goal("<=", 16, None),)),
        Figure("return_s", "s until they have everything", (Goal("<=", 15, None),)),
    ),
    _trial(
        "restart",
        "kill -9 of a server in which 100,000 messages wait for an absent session",
        Figure("start_s", "s to the first CONNACK", (Goal("<", 1, None),)),
    ),
)

SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in _TABLE}

# The large numbers come from deep batches, so a quick look shows the rows without any batching too.
QUICK = ("mixed", "qos1", "pingpong", "fanout_w1", "fanout", "latency")


def choose(names: str) -> list[Scenario]:
    """The scenarios of a comma list, `all` or `quick`; those that need fresh brokers or a disk come last."""
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
    return sorted(chosen, key=lambda scenario: (CONTESTS.index(scenario.contest), scenario.is_fresh))
