"""Cases: the workloads by name, and the rounds that measure one.

Each figure is CPU time of one message in microseconds: the best round, because other work on the machine only
adds to it, and the median, which shows how much that was.
"""

import asyncio
import gc
import tempfile
from collections.abc import Awaitable, Callable
from statistics import median

from msgspec import Struct

from bench.cost import mqtt, requests
from bench.cost.harness import TOTAL, Laps, Site, SteppedLoop, Workload, open_site
from bench.errors import WrongOption

WARM_UP = 2
REST = "rest"
"""Stage of what no other stage has: the connection, its turn, its counters."""


class Case(Struct, frozen=True):
    """A workload and its size."""

    name: str
    summary: str
    prepare: Callable[[Site, int], Awaitable[Workload]]
    share: float = 1.0
    """Part of the messages that are asked for: what takes long needs fewer."""
    unit: str = "message"
    is_on_disk: bool = False


class Figure(Struct, frozen=True):
    """Microseconds of CPU time per message."""

    best_us: float
    median_us: float
    stages: dict[str, float]
    """Of the best round, in order; empty if they cannot be told apart."""
    count: int
    """Messages of a round."""


_TABLE = (
    Case("mixed", "200 topics, chunks of 64 KiB", mqtt.mixed),
    Case("varying", "the same, payloads of 20 to 109 bytes", mqtt.varying),
    Case("one_topic", "the same with one topic", mqtt.one_topic),
    Case("lone", "one message in a turn", mqtt.lone, 0.25),
    Case("unbatched", "50 publishers, one message each in a turn", mqtt.unbatched, 0.5),
    Case("fanout", "one message in a turn to 100 subscribers", mqtt.fan_out, 1.0, "delivery"),
    Case("qos1", "QoS 1 with both acknowledgements, 100 in a turn", mqtt.qos1, 0.25),
    Case("qos2", "QoS 2 with all acknowledgements, 100 in a turn", mqtt.qos2, 0.1),
    Case("durable", "QoS 1, 50 publishers and sessions, log on disk", mqtt.durable, 0.5, is_on_disk=True),
    Case("grpc", "unary publish, 16 calls in a turn", requests.grpc_publish, 0.05),
    Case("ws", "publish and deliver at /ws, 16 in a turn", requests.socket_publish, 0.1),
    Case("streams", "send and receive over HTTP, 16 of each in a turn", requests.stream_requests, 0.05),
)
CASES: dict[str, Case] = {case.name: case for case in _TABLE}


def choose_cases(names: str) -> list[Case]:
    """Cases of a comma list, or `all`.

    Raises:
        WrongOption: there is no such case.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if wanted == ["all"]:
        return list(_TABLE)
    unknown = [name for name in wanted if name not in CASES]
    if unknown or not wanted:
        raise WrongOption(
            f"unknown case {', '.join(unknown) or repr(names)}; known are all, {', '.join(CASES)}"
        )
    return [CASES[name] for name in dict.fromkeys(wanted)]


def measure(case: Case, messages: int, rounds: int) -> Figure:
    """Measure a case on a server of its own.

    Args:
        messages: of a round, before the case takes its share.

    Raises:
        BenchError: a round lost or doubled a message.
    """
    count = max(round(messages * case.share), 1)
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=SteppedLoop) as runner:
        settings = {"data_dir": folder} if case.is_on_disk else {}
        return runner.run(_measure(case, count, rounds, settings))


async def _measure(case: Case, count: int, rounds: int, settings: dict[str, str]) -> Figure:
    async with open_site(**settings) as site:
        workload = await case.prepare(site, count)
        laps = Laps()
        for _ in range(WARM_UP):
            await _round(workload, laps)
        gc.collect()
        gc.freeze()  # as the server does when it has started
        measured = [await _round(workload, laps) for _ in range(rounds)]
    return _figure(workload.count, measured)


async def _round(workload: Workload, laps: Laps) -> tuple[dict[str, int], dict[str, int]]:
    """One round as a whole, and one by stages if the workload can."""
    await workload.run(laps)
    whole = laps.take()
    workload.check()
    await asyncio.sleep(0)  # ends what the round has scheduled
    await workload.run_stages(laps)
    stages = laps.take()
    if stages:
        workload.check()
        await asyncio.sleep(0)
    return whole, stages


def _figure(count: int, measured: list[tuple[dict[str, int], dict[str, int]]]) -> Figure:
    def in_us(took_ns: float) -> float:
        return round(took_ns / count / 1000, 4)

    best = min((whole for whole, _ in measured), key=_sum)
    stages = min((stages for _, stages in measured), key=_sum)
    if stages:
        stages = stages | {REST: max(_sum(best) - _sum(stages), 0)}
    elif TOTAL not in best:
        stages = best
    return Figure(
        best_us=in_us(_sum(best)),
        median_us=in_us(median(_sum(whole) for whole, _ in measured)),
        stages={name: in_us(took) for name, took in stages.items()},
        count=count,
    )


def _sum(stages: dict[str, int]) -> int:
    return sum(stages.values())
