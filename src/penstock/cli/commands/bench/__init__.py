"""`penstock bench`: load test of a running server over MQTT.

The load itself is imported when a test runs: `penstock --help` need not wait for it.
"""

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from penstock.cli.connect import Endpoint, MqttServer, complete_topic, report_mqtt_error
from penstock.cli.flags import Group, duration_option, spread
from penstock.cli.output import INTERRUPTED, Output, OutputOption, print_json, print_pairs, progress_count
from penstock.common.text import milliseconds_text, rate_text, size_text
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

    from penstock.cli.commands.bench.load_test import Connect, Flow, Latency, LoadTest, Result
    from penstock.client.mqtt.stream import PacketStream

KEEP_ALIVE_S = 60
TIMEOUT_S = 5.0
LEAST_SIZE = 28
"""Bytes of the stamp that each payload begins with."""

app = typer.Typer(
    help="Load a running server, and measure rates, latencies and losses.", no_args_is_help=True
)

Topic = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC", help="Topic; prefix of several with --topics.", autocompletion=complete_topic
    ),
]
Publishers = Annotated[
    int, typer.Option("--publishers", min=1, metavar="COUNT", help="Connections that publish.")
]
Subscribers = Annotated[
    int,
    typer.Option(
        "--subscribers", min=1, metavar="COUNT", help="Connections that each receive every message."
    ),
]
Rate = Annotated[
    float,
    typer.Option(
        "--rate", min=0, metavar="PER_SECOND", help="Messages per second in all; 0: as fast as possible."
    ),
]
Window = Annotated[
    int,
    typer.Option(
        "--window",
        min=0,
        metavar="COUNT",
        help="Messages in flight at most, to acknowledgement and to delivery; 0: no limit.",
    ),
]


class LoadFlags(Group, frozen=True, kw_only=True):
    """Flags of every load test."""

    messages: Annotated[
        int, typer.Option("--messages", "-n", min=1, metavar="COUNT", help="Messages that are published.")
    ] = 100_000
    size: Annotated[
        int, typer.Option("--size", min=LEAST_SIZE, metavar="BYTES", help="Size of each payload.")
    ] = 128
    qos: Annotated[int, typer.Option("--qos", "-q", min=0, max=2, metavar="QOS", help="0, 1 or 2.")] = 0
    topics: Annotated[
        int,
        typer.Option(
            "--topics", min=1, metavar="COUNT", help="Publish in turn to TOPIC/0, TOPIC/1 and so on."
        ),
    ] = 1
    timeout: Annotated[
        float,
        duration_option(
            "--timeout", "End when nothing has arrived for this long.", least=0.1, default=TIMEOUT_S
        ),
    ] = TIMEOUT_S


@app.command("pub")
@spread
def pub(
    topic: Topic,
    *,
    flags: LoadFlags,
    publishers: Publishers = 1,
    rate: Rate = 0.0,
    window: Window = 1_000,
    server: MqttServer,
    output: OutputOption = Output.TEXT,
) -> None:
    """Publish, and measure the rate; at QoS 1 and 2 also the time to the acknowledgement.

    Exits with 1 when messages were not acknowledged.
    """
    _run(topic, flags, server, output, publishers=publishers, rate=rate, window=window)


@app.command("sub")
@spread
def sub(
    topic: Topic,
    *,
    flags: LoadFlags,
    subscribers: Subscribers = 1,
    server: MqttServer,
    output: OutputOption = Output.TEXT,
) -> None:
    """Receive what `penstock bench pub` publishes elsewhere, and measure the rate and latencies.

    Waits for the first message as long as it takes. Exits with 1 when messages were lost.
    """
    _run(topic, flags, server, output, subscribers=subscribers)


@app.command("pubsub")
@spread
def pubsub(
    topic: Topic,
    *,
    flags: LoadFlags,
    publishers: Publishers = 1,
    subscribers: Subscribers = 1,
    rate: Rate = 0.0,
    window: Window = 1_000,
    server: MqttServer,
    output: OutputOption = Output.TEXT,
) -> None:
    """Publish and receive in one process, and measure rates, latencies and losses.

    Exits with 1 when messages were lost.
    """
    _run(
        topic,
        flags,
        server,
        output,
        publishers=publishers,
        subscribers=subscribers,
        rate=rate,
        window=window,
    )


def _run(
    topic: str,
    flags: LoadFlags,
    server: MqttServer,
    output: Output,
    *,
    publishers: int = 0,
    subscribers: int = 0,
    rate: float = 0.0,
    window: int = 0,
) -> None:
    from penstock.cli.commands.bench.load_test import LoadTest, Plan  # noqa: PLC0415

    if "+" in topic or "#" in topic:
        raise typer.BadParameter(f"{topic!r} is a filter; give a topic, and --topics for several")
    plan = Plan(
        topic=topic,
        messages=flags.messages,
        size=flags.size,
        qos=flags.qos,
        topics=flags.topics,
        publishers=publishers,
        subscribers=subscribers,
        rate=rate,
        window=window,
        timeout_s=flags.timeout,
    )
    result = _measure(LoadTest(plan), server)
    if output is Output.JSON:
        print_json([msgspec.to_builtins(result)])
    else:
        print_pairs(_facts(result))
    if result.is_interrupted:
        raise typer.Exit(INTERRUPTED)
    if result.lost:
        raise typer.Exit(1)


def _measure(test: "LoadTest", server: MqttServer) -> "Result":
    """Run the test; a refused or lost connection becomes one line and exit code 1."""
    import asyncio  # noqa: PLC0415 - only when a test runs

    server.check_user()
    endpoint = server.endpoint
    try:
        connect = _make_connect(server, endpoint)
        with (
            asyncio.Runner(loop_factory=_loop_factory()) as runner,
            progress_count("messages", lambda: test.progress, test.total),
        ):
            return runner.run(test.run(connect))
    except KeyboardInterrupt:  # before the test began, as at the prompt for a password
        raise typer.Exit(INTERRUPTED) from None
    except PenstockError as error:
        raise report_mqtt_error(error, server, endpoint) from None


def _make_connect(server: MqttServer, endpoint: Endpoint) -> "Connect":
    """A function that connects; client ids begin with --client-id, or a name of this run."""
    from secrets import token_hex  # noqa: PLC0415

    from penstock.client.mqtt import handshake  # noqa: PLC0415
    from penstock.wire.mqtt import packets  # noqa: PLC0415

    path = endpoint.path if endpoint.is_websocket else None
    tls, password = server.tls_context(endpoint.is_secure), server.find_password()
    address = handshake.Endpoint(endpoint.host, endpoint.port, server.connect_timeout, tls, path)
    prefix = server.client_id or f"bench-{token_hex(4)}"

    async def connect(suffix: str) -> "tuple[PacketStream, int]":
        packet = packets.Connect(
            f"{prefix}-{suffix}",
            packets.Version.V5 if server.is_5 else packets.Version.V311,
            keep_alive=KEEP_ALIVE_S,
            user_name=server.user,
            password=None if password is None else password.encode(),
        )
        stream, connack = await address.connect(packet, None)
        return stream, connack.properties.receive_maximum or 0xFFFF

    return connect


def _loop_factory() -> "Callable[[], AbstractEventLoop] | None":
    """uvloop where it is installed."""
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return None
    return uvloop.new_event_loop


def _facts(result: "Result") -> "list[tuple[str, str]]":
    return [
        ("published", _flow_text(result.published)),
        ("delivered", _flow_text(result.delivered)),
        ("latency", _latency_text(result.latency)),
        ("lost", _count_text(result.lost)),
        ("duplicates", _count_text(result.duplicates)),
        ("out of order", _count_text(result.out_of_order)),
    ]


def _flow_text(flow: "Flow | None") -> str:
    if flow is None:
        return "-"
    if not flow.messages:
        return "nothing"
    rate, size = rate_text(flow.messages_per_s), size_text(flow.bytes_per_s)
    return f"{flow.messages:,} messages in {flow.seconds:.2f} s, {rate}/s, {size}/s"


def _latency_text(latency: "Latency | None") -> str:
    if latency is None:
        return "-"
    names = ("mean", "p50", "p90", "p95", "p99", "p999", "max")
    return ", ".join(f"{name} {milliseconds_text(getattr(latency, f'{name}_ms'))}" for name in names)


def _count_text(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"
