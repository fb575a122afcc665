"""What absent sessions cost that are owed something, and how long they take to get it when they return."""

import time
from collections.abc import Iterator

from penstock.cli.bench.brokers import pinned_to
from penstock.cli.bench.measurement import Measurement
from penstock.cli.bench.trials.crowd import leave_sessions, publish, return_all, run
from penstock.cli.bench.trials.serving import Server
from penstock.cli.bench.trials.site import Site

SESSIONS = 100_000
RETURNING = 10_000
TOPIC_COUNT = 100
EACH = 100
"""Messages of each topic, and so of each session."""
PAYLOAD = bytes(range(100))
SETTLE_S = 1.5
"""Before memory is read, so that nothing is under way."""


def come_back(site: Site, repeat: int) -> Iterator[Measurement]:
    """Let many sessions be owed many messages; then some of them return, others each time."""
    returning = site.count(RETURNING)
    sessions = max(site.count(SESSIONS), returning * repeat)
    names = [f"bench-{number:06d}" for number in range(sessions)]
    server = Server(site.folder, site.server_cpu)
    server.start()
    try:
        with pinned_to(site.client_cpu):
            site.say(f"  owed: {sessions:,} sessions come and go")
            run(leave_sessions(server.port, [(name, _topic(number)) for number, name in enumerate(names)]))
            before = _settled_bytes(server)
            site.say(f"  owed: {EACH} messages are published for each")
            run(publish(server.port, ((_topic(number), PAYLOAD) for number in range(TOPIC_COUNT * EACH))))
            owed_bytes = _settled_bytes(server) - before
            for number in range(repeat):
                found = _return(server, names[number * returning : (number + 1) * returning])
                found.size = f"{sessions:,} sessions, {sessions * EACH:,} deliveries, {returning:,} returning"
                found.bytes_per_owed = owed_bytes / (sessions * EACH)
                yield found
    finally:
        server.kill()


def _topic(number: int) -> str:
    return f"bench/owed/{number % TOPIC_COUNT:03d}"


def _settled_bytes(server: Server) -> int:
    time.sleep(SETTLE_S)
    return server.read().rss_bytes


def _return(server: Server, names: list[str]) -> Measurement:
    before = server.read()
    members, took_s = run(return_all(server.port, names, EACH))
    forgotten = sum(not member.is_known for member in members)
    return Measurement(
        error=f"{forgotten:,} sessions were forgotten" if forgotten else None,
        return_s=took_s,
        return_cpu_s=server.read().cpu_s - before.cpu_s,
        lost=len(names) * EACH - sum(member.got for member in members),
    )
