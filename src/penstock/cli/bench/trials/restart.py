"""How soon a server is back that was killed while many messages waited for someone who is not there."""

from collections.abc import Iterator

from penstock.cli.bench.brokers import pinned_to
from penstock.cli.bench.measurement import Measurement
from penstock.cli.bench.trials.crowd import leave_sessions, publish, return_all, run
from penstock.cli.bench.trials.serving import Server
from penstock.cli.bench.trials.site import Site

MESSAGES = 100_000
ABSENT = "bench-absent"
TOPIC = "bench/restart"
PAYLOAD = bytes(range(100))
ROOM_BYTES = 1 << 30


def restart_after_kill(site: Site, repeat: int) -> Iterator[Measurement]:
    """Kill and start again and again; at last the absent one returns and has to get everything."""
    messages = site.count(MESSAGES)
    server = Server(
        site.folder,
        site.server_cpu,
        sessions__owed_messages=messages,
        sessions__owed_bytes=ROOM_BYTES,
    )
    server.start()
    try:
        with pinned_to(site.client_cpu):
            run(leave_sessions(server.port, [(ABSENT, TOPIC)]))
            run(publish(server.port, ((TOPIC, PAYLOAD) for _ in range(messages))))
        for number in range(repeat):
            server.kill()
            found = Measurement(size=f"{messages:,} messages", start_s=server.start())
            found.start_cpu_s = server.read().cpu_s
            if number == repeat - 1:
                with pinned_to(site.client_cpu):
                    (member,), _ = run(return_all(server.port, [ABSENT], messages))
                found.lost = messages - member.got
            yield found
    finally:
        server.kill()
