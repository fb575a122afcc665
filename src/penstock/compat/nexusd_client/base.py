"""What the blocking client and its asynchronous twin are made with, and what both are asked the same way."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import grpc

from penstock.client.channels import credentials_metadata
from penstock.client.nexusd_following import Following
from penstock.compat.nexusd_client.errors import ConnectionError, PublishError
from penstock.compat.nexusd_client.listeners import GapCallback, Listeners, StateCallback
from penstock.compat.nexusd_client.policy import ReconnectionPolicy
from penstock.compat.nexusd_client.recovery import InfoCallback, Recovery
from penstock.compat.nexusd_client.values import (
    GapRecoveryMode,
    PublishResult,
    ReconnectionState,
    result_of,
)
from penstock.wire.sidecar import nexusd

CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", -1),  # the daemon's limit is the limit
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # another client's trouble is not ours
    ("grpc.initial_reconnect_backoff_ms", 100),  # our own policy waits; the channel is not to wait on top
    ("grpc.min_reconnect_backoff_ms", 20_000),  # in truth, how long one attempt may take
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_retries", 0),
    ("grpc.keepalive_time_ms", 30_000),  # so that a daemon that vanished is noticed
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
]
DEFAULT_TIMEOUT_MS = 5000


class ClientBase:
    """Everything of a client but its waiting."""

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
        """Get ready to talk to a daemon; the connection is made when it is needed.

        Args:
            reconnect_config: the older name of `reconnection_policy`.
            gap_recovery_mode: what subscriptions do after an interruption unless they say otherwise; None
                stands for `REPLAY_BUFFER`.
            timeout_ms: how long a call may take that is not a subscription.
            username: who we are, for a server that wants to know.
            ca_file: whom to believe; with it, and only with it, the connection is encrypted.
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
        """Make what can be made before anything is asked."""

    @property
    def state(self) -> ReconnectionState:
        """How the subscriptions and the daemon stand to each other."""
        return self._listeners.state

    def on_connection_state_change(self, callback: StateCallback) -> None:
        """Call a function with each new state, and the error that led to it or None."""
        self._listeners.add_state(callback)

    def on_gap_detected(self, callback: GapCallback) -> None:
        """Call a function for each gap: with the number that was expected, the one that came, and the topic.

        The number that came is -1 if the daemon has forgotten the subscription: then nobody knows what is
        missing. It is lower than the one expected if the daemon has begun to count anew.
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
        following = Following(
            [topics] if isinstance(topics, str) else topics,
            client_id=self.client_id,
            receive_retained=receive_retained,
            max_buffer_size=max_buffer_size,
            mode=self._mode if mode is None else mode,
            subscription_id=subscription_id,
            last_sequences=last_sequences,
        )
        return Recovery(following, self._policy, self._listeners, on_gap)

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
    """A message as it is sent."""
    return nexusd.PublishRequest(
        topic=topic,
        payload=payload,
        content_type=content_type,
        retain=retain,
        correlation_id=correlation_id,
        ttl_ms=ttl_ms,
    )


def published(response: nexusd.PublishResponse) -> PublishResult:
    """What became of it.

    Raises:
        PublishError: the daemon has answered that it did not take it.
    """
    if not response.success:
        raise PublishError(f"publish: {response.error_message}")
    return result_of(response)
