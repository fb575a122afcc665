"""Base class of the blocking and the asynchronous client."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import grpc

from penstock.client.grpc.connection import credentials_metadata
from penstock.client.grpc.nexusd.resume import ResumeState
from penstock.compat.nexusd_client.recovery import (
    GapCallback,
    InfoCallback,
    Listeners,
    Recovery,
    StateCallback,
)
from penstock.compat.nexusd_client.types import (
    ConnectionError,
    GapRecoveryMode,
    PublishError,
    PublishResult,
    ReconnectionPolicy,
    ReconnectionState,
    publish_result_from_wire,
)
from penstock.wire.sidecar.messages import nexusd

CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", -1),  # the daemon's limits apply
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # connections are not shared between clients
    ("grpc.initial_reconnect_backoff_ms", 100),  # the reconnection policy decides when to retry
    ("grpc.min_reconnect_backoff_ms", 20_000),  # despite its name the timeout of one attempt
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_retries", 0),
    ("grpc.keepalive_time_ms", 30_000),  # detects a daemon that vanished
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
]
DEFAULT_TIMEOUT_MS = 5000


class ClientBase:
    """Common part of both clients: everything except I/O."""

    def __init__(
        self,
        address: str = "localhost:5672",
        reconnect_config: ReconnectionPolicy | None = None,
        *,
        reconnection_policy: ReconnectionPolicy | None = None,
        gap_recovery_mode: GapRecoveryMode | None = None,
        client_id: str | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        username: str | None = None,
        password: str | None = None,
        ca_file: str | Path | None = None,
    ) -> None:
        """Configure a client; it connects on first use.

        Args:
            reconnect_config: older name of `reconnection_policy`.
            gap_recovery_mode: default of subscriptions that set none; None means `REPLAY_BUFFER`.
            timeout_ms: limit of calls other than subscriptions.
            username: user name, for servers with access control.
            ca_file: trusted authorities (PEM); without it the connection is not encrypted.
        """
        self.address = address
        self.client_id = client_id or str(uuid4())
        self._policy = reconnection_policy or reconnect_config or ReconnectionPolicy()
        self._mode = GapRecoveryMode.REPLAY_BUFFER if gap_recovery_mode is None else gap_recovery_mode
        self._timeout_s = timeout_ms / 1000
        self._metadata = credentials_metadata(username, None if username is None else password)
        self._ca_file = ca_file
        self._listeners = Listeners()
        self._is_closed = False
        self._prepare()

    def _prepare(self) -> None:
        """Set up the parts that depend on the kind of client."""

    @property
    def state(self) -> ReconnectionState:
        """State of the connection."""
        return self._listeners.state

    def on_connection_state_change(self, callback: StateCallback) -> None:
        """Register a callback for state changes; it gets the state, and the error that caused it or None."""
        self._listeners.add_state(callback)

    def on_gap_detected(self, callback: GapCallback) -> None:
        """Register a callback for gaps; it gets the expected number, the received one, and the topic.

        The received number is -1 if the daemon has lost the subscription: the size of the gap is unknown. It
        is lower than the expected one if the daemon has started to count again.
        """
        self._listeners.add_gap(callback)

    def _recovery(
        self,
        topics: Sequence[str],
        receive_retained: bool,
        max_buffer_size: int,
        mode: GapRecoveryMode | None,
        on_gap: InfoCallback | None,
        subscription_id: str,
        last_sequences: Mapping[str, int] | None,
    ) -> Recovery:
        self._check_open()
        resume = ResumeState(
            [topics] if isinstance(topics, str) else topics,
            client_id=self.client_id,
            receive_retained=receive_retained,
            max_buffer_size=max_buffer_size,
            mode=self._mode if mode is None else mode,
            subscription_id=subscription_id,
            last_sequences=last_sequences,
        )
        return Recovery(resume, self._policy, self._listeners, on_gap)

    def _channel_credentials(self) -> grpc.ChannelCredentials | None:
        if self._ca_file is None:
            return None
        return grpc.ssl_channel_credentials(Path(self._ca_file).read_bytes())

    def _check_open(self) -> None:
        if self._is_closed:
            raise ConnectionError("the client is closed")


def publish_request(
    topic: str, payload: bytes, content_type: str, retain: bool, correlation_id: str, ttl_ms: int
) -> nexusd.PublishRequest:
    """Request for a publish."""
    return nexusd.PublishRequest(
        topic=topic,
        payload=payload,
        content_type=content_type,
        retain=retain,
        correlation_id=correlation_id,
        ttl_ms=ttl_ms,
    )


def publish_result(response: nexusd.PublishResponse) -> PublishResult:
    """Result of a publish.

    Raises:
        PublishError: the daemon refused the message.
    """
    if not response.success:
        raise PublishError(f"publish: {response.error_message}")
    return publish_result_from_wire(response)
