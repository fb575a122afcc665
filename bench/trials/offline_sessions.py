"""Offline sessions: memory of their queues, time to drain them, restart of a killed server that has them."""

import time
from collections.abc import Iterator

from bench.measurement import Measurement
from bench.peers.broker import pinned_to
from bench.trials.mqtt_clients import make_offline_sessions, publish, reconnect_all, run
from bench.trials.server import Server, Site

SESSIONS = 100_000
RETURNING = 10_000
TOPIC_COUNT = 100
EACH = 100
"""Messages per topic, and so per session."""
PAYLOAD = bytes(range(100))
SETTLE_S = 1.5
"""Pause before memory is read, so that no work is pending."""
RESTART_MESSAGES = 100_000
RESTART_TOPIC = "bench/restart"
OFFLINE = "bench-offline"
QUEUE_BYTES = 1 << 30


def drain_offline_queues(site: Site, repeat: int) -> Iterator[Measurement]:
    """Queue messages for many offline sessions; then some reconnect, others in each run."""
    returning = site.count(RETURNING)
    sessions = max(site.count(SESSIONS), returning * repeat)
    names = [f"bench-{number:06d}" for number in range(sessions)]
    server = Server(site.folder, site.server_cpu)
    server.start()
    try:
        with pinned_to(site.client_cpu):
            site.say(f"  owed: {sessions:,} sessions connect and disconnect")
            run(
                make_offline_sessions(
                    server.port, [(name, _topic(number)) for number, name in enumerate(names)]
                )
            )
            before = _settled_bytes(server)
            site.say(f"  owed: {EACH} messages are published for each")
            run(publish(server.port, ((_topic(number), PAYLOAD) for number in range(TOPIC_COUNT * EACH))))
            queued_bytes = _settled_bytes(server) - before
            for number in range(repeat):
                found = _reconnect(server, names[number * returning : (number + 1) * returning])
                found.size = f"{sessions:,} sessions, {sessions * EACH:,} deliveries, {returning:,} returning"
                found.bytes_per_owed = queued_bytes / (sessions * EACH)
                yield found
    finally:
        server.kill()


def _topic(number: int) -> str:
    return f"bench/owed/{number % TOPIC_COUNT:03d}"


def _settled_bytes(server: Server) -> int:
    time.sleep(SETTLE_S)
    return server.read().rss_bytes


def _reconnect(server: Server, names: list[str]) -> Measurement:
    before = server.read()
    clients, took_s = run(reconnect_all(server.port, names, EACH))
    forgotten = sum(not client.is_known for client in clients)
    return Measurement(
        error=f"{forgotten:,} sessions were forgotten" if forgotten else None,
        return_s=took_s,
        return_cpu_s=server.read().cpu_s - before.cpu_s,
        lost=len(names) * EACH - sum(client.got for client in clients),
    )


def restart_after_kill(site: Site, repeat: int) -> Iterator[Measurement]:
    """Kill and restart repeatedly; at the end the session reconnects and must receive everything."""
    messages = site.count(RESTART_MESSAGES)
    server = Server(
        site.folder,
        site.server_cpu,
        sessions__owed_messages=messages,
        sessions__owed_bytes=QUEUE_BYTES,
    )
    server.start()
    try:
        with pinned_to(site.client_cpu):
            run(make_offline_sessions(server.port, [(OFFLINE, RESTART_TOPIC)]))
            run(publish(server.port, ((RESTART_TOPIC, PAYLOAD) for _ in range(messages))))
        for number in range(repeat):
            server.kill()
            found = Measurement(size=f"{messages:,} messages", start_s=server.start())
            found.start_cpu_s = server.read().cpu_s
            if number == repeat - 1:
                with pinned_to(site.client_cpu):
                    (client,), _ = run(reconnect_all(server.port, [OFFLINE], messages))
                found.lost = messages - client.got
            yield found
    finally:
        server.kill()
