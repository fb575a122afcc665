"""Names and defaults of NexusD's documentation, and the older aliases."""

from dataclasses import fields
from inspect import signature

import pytest

from penstock.compat import nexusd_client
from penstock.compat.nexusd_client import (
    AsyncNexusdClient,
    ConnectionError,
    GapRecoveryMode,
    Message,
    NexusdClient,
    NexusdError,
    PublishError,
    PublishResult,
    ReconnectConfig,
    ReconnectionPolicy,
    ReconnectionState,
    SubscribeError,
    SubscriptionInfo,
    UnsubscribeError,
)


def test_the_package_has_every_name_of_the_original() -> None:
    original = {
        "AsyncNexusdClient",
        "ConnectionError",
        "GapRecoveryMode",
        "Message",
        "NexusdClient",
        "NexusdError",
        "PeerInfo",
        "PublishError",
        "PublishResult",
        "ReconnectConfig",
        "ReconnectionPolicy",
        "ReconnectionState",
        "SubscribeError",
        "SubscriptionInfo",
        "TopicInfo",
        "UnsubscribeError",
    }
    assert set(nexusd_client.__all__) == original | {"AsyncSubscription", "Subscription"}
    assert all(hasattr(nexusd_client, name) for name in nexusd_client.__all__)


def test_both_clients_take_the_same() -> None:
    for name in ("publish", "subscribe", "unsubscribe", "get_topics", "get_peers", "close", "connect"):
        blocking = list(signature(getattr(NexusdClient, name)).parameters.values())
        waiting = list(signature(getattr(AsyncNexusdClient, name)).parameters.values())
        assert blocking == waiting
    assert signature(NexusdClient) == signature(AsyncNexusdClient)


@pytest.mark.parametrize(
    ("method", "wanted"),
    [
        (
            "publish",
            {
                "topic": None,
                "payload": None,
                "content_type": "",
                "retain": False,
                "correlation_id": "",
                "ttl_ms": 0,
            },
        ),
        (
            "subscribe",
            {
                "topics": None,
                "receive_retained": True,
                "max_buffer_size": 0,
                "gap_recovery_mode": None,
                "on_gap_detected": None,
            },
        ),
        ("unsubscribe", {"subscription_id": None, "pause": False}),
        ("__init__", {"address": "localhost:5672", "reconnect_config": None}),
    ],
)
def test_methods_have_the_parameters_and_defaults_of_the_original(
    method: str, wanted: dict[str, object]
) -> None:
    given = signature(getattr(NexusdClient, method)).parameters
    positional = [one for one in given.values() if one.kind is one.POSITIONAL_OR_KEYWORD][1:]
    assert {one.name: None if one.default is one.empty else one.default for one in positional} == wanted


def test_values_have_the_fields_of_the_original_first() -> None:
    def names(kind: type) -> list[str]:
        return [field.name for field in fields(kind)]

    assert names(Message) == [
        "message_id",
        "topic",
        "payload",
        "content_type",
        "timestamp_ms",
        "source_node_id",
        "correlation_id",
        "is_retained",
        "is_replay",
        "sequence_number",
    ]
    assert names(PublishResult)[:4] == ["success", "message_id", "subscriber_count", "error_message"]
    assert names(SubscriptionInfo)[:6] == [
        "subscription_id",
        "topics",
        "gap_detected",
        "missed_message_count",
        "replay_started",
        "last_sequence",
    ]


def test_modes_have_the_numbers_of_the_wire_and_states_their_names() -> None:
    assert [(mode.name, mode.value) for mode in GapRecoveryMode] == [
        ("NONE", 0),
        ("RETAINED_ONLY", 1),
        ("REPLAY_BUFFER", 2),
    ]
    assert [state.name for state in ReconnectionState] == [
        "CONNECTED",
        "DISCONNECTED",
        "RECONNECTING",
        "FAILED",
    ]


def test_all_errors_are_of_one_family() -> None:
    kinds = (ConnectionError, PublishError, SubscribeError, UnsubscribeError)
    assert all(issubclass(kind, NexusdError) for kind in kinds)


def test_the_policy_of_the_documents_is_the_default() -> None:
    policy = ReconnectionPolicy()
    assert [policy.delay_ms(attempt, 0.0) for attempt in range(7)] == [
        1000,
        2000,
        4000,
        8000,
        16000,
        30000,
        30000,
    ]
    assert policy.delay_ms(0, 1.0) == 1100
    assert all(1000 <= policy.delay_ms(0) < 1100 for _ in range(100))
    assert policy.allows(10**9)


def test_a_policy_can_stay_at_its_first_delay_and_give_up() -> None:
    policy = ReconnectionPolicy(max_retries=2, initial_delay_ms=50, exponential_backoff=False)
    assert policy.delay_ms(9, 0.0) == 50
    assert [policy.allows(attempt) for attempt in range(3)] == [True, True, False]


def test_an_older_configuration_means_the_same_policy() -> None:
    config = ReconnectConfig(initial_delay_ms=10, multiplier=3.0, max_attempts=4, jitter=0.5)
    assert (config.max_retries, config.jitter_factor) == (4, 0.5)
    assert (config.max_attempts, config.jitter) == (4, 0.5)
    assert config.delay_ms(2, 0.0) == 90
    assert ReconnectConfig().delay_ms(0, 0.0) == ReconnectionPolicy().delay_ms(0, 0.0)
    assert not ReconnectConfig(enabled=False).allows(0)


@pytest.mark.parametrize(
    "wrong",
    [{"max_retries": -1}, {"initial_delay_ms": -1}, {"jitter_factor": -0.1}, {"multiplier": 0.5}],
    ids=str,
)
def test_a_policy_without_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="not a valid policy"):
        ReconnectionPolicy(**wrong)  # type: ignore[arg-type]


def test_a_delay_has_a_limit_however_often_it_was_tried() -> None:
    assert ReconnectionPolicy(multiplier=100.0).delay_ms(10**6, 0.0) == 30000


def test_bytes_that_are_no_text_can_be_looked_at_all_the_same() -> None:
    message = Message("m", "t", b"a\xff", "", 0, "", "")
    assert message.payload_as_string() == "a\N{REPLACEMENT CHARACTER}"
