"""`$SYS/broker/` topics: statistics in the names that MQTT brokers share.

Every value is published, retained, at each interval, with or without a subscriber, because a retained value
has to stay true. The cost is 17 small publishes every ten seconds.
"""

from penstock.core.broker import Broker
from penstock.core.runtime.clock import Clock
from penstock.errors import PenstockError

PREFIX = "$SYS/broker/"


class SysTopics:
    """Publishes a broker's figures each time it is asked to; the first time before any client comes."""

    def __init__(self, broker: Broker, clock: Clock, version: str) -> None:
        self._broker = broker
        self._clock = clock
        self._version = version
        self._started_at = clock.monotonic()

    def publish(self) -> None:
        """Publish every value as it is now."""
        for name, value in self.values().items():
            try:
                self._broker.publish_server(PREFIX + name, str(value).encode(), retain=True)
            except PenstockError:
                continue  # `topic` limits are narrower than this name, or used up; the others may still fit

    def values(self) -> dict[str, str | int]:
        """Every value by the end of its topic: totals since start, but for what there is of something now."""
        broker, counters = self._broker, self._broker.counters
        connected = counters.connections - counters.disconnections
        published = counters.published + counters.publishes_refused
        return {
            "version": self._version,
            "uptime": int(self._clock.monotonic() - self._started_at),
            "clients/connected": connected,
            "clients/total": len(broker.sessions),
            "clients/disconnected": len(broker.sessions) - connected,
            "messages/received": published + counters.control_packets_received,
            "messages/sent": counters.delivered + counters.control_packets_sent,
            "messages/publish/received": published,
            "messages/publish/sent": counters.delivered,
            "bytes/received": counters.bytes_received,
            "bytes/sent": counters.bytes_sent,
            "subscriptions/count": counters.subscriptions_added - counters.subscriptions_removed,
            "retained/count": broker.retained.of_clients,
            "errors/protocol": counters.wire_errors - counters.malformed_packets,
            "errors/auth": counters.authentications_failed,
            "errors/authz": counters.actions_forbidden,
            "errors/packet": counters.malformed_packets,
            **self._values_of_log(),
        }

    def _values_of_log(self) -> dict[str, str | int]:
        """State of the log, if it is durable."""
        log = self._broker.log
        if not log.is_durable:
            return {}
        return {
            "log/state": self._state_of_log(),
            "log/first_offset": log.first_offset,
            "log/last_offset": log.last_offset,
        }

    def _state_of_log(self) -> str:
        log = self._broker.log
        if log.failure is not None:
            return f"failing: {log.failure}"
        return "behind" if log.is_behind else "ok"
