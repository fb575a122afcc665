# mypy: disable-error-code="type-arg"
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GapRecoveryMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GAP_RECOVERY_NONE: _ClassVar[GapRecoveryMode]
    GAP_RECOVERY_RETAINED_ONLY: _ClassVar[GapRecoveryMode]
    GAP_RECOVERY_REPLAY_BUFFER: _ClassVar[GapRecoveryMode]
GAP_RECOVERY_NONE: GapRecoveryMode
GAP_RECOVERY_RETAINED_ONLY: GapRecoveryMode
GAP_RECOVERY_REPLAY_BUFFER: GapRecoveryMode

class PublishRequest(_message.Message):
    __slots__ = ("topic", "payload", "content_type", "retain", "correlation_id", "ttl_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    RETAIN_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    payload: bytes
    content_type: str
    retain: bool
    correlation_id: str
    ttl_ms: int
    def __init__(self, topic: _Optional[str] = ..., payload: _Optional[bytes] = ..., content_type: _Optional[str] = ..., retain: _Optional[bool] = ..., correlation_id: _Optional[str] = ..., ttl_ms: _Optional[int] = ...) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ("success", "message_id", "subscriber_count", "error_message", "subscribers_dropped", "subscribers_blocked")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_COUNT_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBERS_DROPPED_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBERS_BLOCKED_FIELD_NUMBER: _ClassVar[int]
    success: bool
    message_id: str
    subscriber_count: int
    error_message: str
    subscribers_dropped: int
    subscribers_blocked: int
    def __init__(self, success: _Optional[bool] = ..., message_id: _Optional[str] = ..., subscriber_count: _Optional[int] = ..., error_message: _Optional[str] = ..., subscribers_dropped: _Optional[int] = ..., subscribers_blocked: _Optional[int] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("topics", "client_id", "receive_retained", "max_buffer_size")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    RECEIVE_RETAINED_FIELD_NUMBER: _ClassVar[int]
    MAX_BUFFER_SIZE_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    client_id: str
    receive_retained: bool
    max_buffer_size: int
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., client_id: _Optional[str] = ..., receive_retained: _Optional[bool] = ..., max_buffer_size: _Optional[int] = ...) -> None: ...

class ResumeSubscribeRequest(_message.Message):
    __slots__ = ("subscription_id", "topics", "last_message_id", "last_sequence_per_topic", "gap_recovery_mode", "receive_retained")
    class LastSequencePerTopicEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    LAST_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_PER_TOPIC_FIELD_NUMBER: _ClassVar[int]
    GAP_RECOVERY_MODE_FIELD_NUMBER: _ClassVar[int]
    RECEIVE_RETAINED_FIELD_NUMBER: _ClassVar[int]
    subscription_id: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    last_message_id: str
    last_sequence_per_topic: _containers.ScalarMap[str, int]
    gap_recovery_mode: GapRecoveryMode
    receive_retained: bool
    def __init__(self, subscription_id: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., last_message_id: _Optional[str] = ..., last_sequence_per_topic: _Optional[_Mapping[str, int]] = ..., gap_recovery_mode: _Optional[_Union[GapRecoveryMode, str]] = ..., receive_retained: _Optional[bool] = ...) -> None: ...

class MessageEvent(_message.Message):
    __slots__ = ("subscription_info", "message", "retained_message", "heartbeat", "replay_message", "replay_complete", "backpressure_warning")
    SUBSCRIPTION_INFO_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETAINED_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    REPLAY_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REPLAY_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    BACKPRESSURE_WARNING_FIELD_NUMBER: _ClassVar[int]
    subscription_info: SubscriptionInfo
    message: Message
    retained_message: Message
    heartbeat: Heartbeat
    replay_message: Message
    replay_complete: ReplayComplete
    backpressure_warning: BackpressureWarning
    def __init__(self, subscription_info: _Optional[_Union[SubscriptionInfo, _Mapping]] = ..., message: _Optional[_Union[Message, _Mapping]] = ..., retained_message: _Optional[_Union[Message, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., replay_message: _Optional[_Union[Message, _Mapping]] = ..., replay_complete: _Optional[_Union[ReplayComplete, _Mapping]] = ..., backpressure_warning: _Optional[_Union[BackpressureWarning, _Mapping]] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("message_id", "topic", "payload", "content_type", "timestamp_ms", "source_node_id", "correlation_id", "sequence_number")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    topic: str
    payload: bytes
    content_type: str
    timestamp_ms: int
    source_node_id: str
    correlation_id: str
    sequence_number: int
    def __init__(self, message_id: _Optional[str] = ..., topic: _Optional[str] = ..., payload: _Optional[bytes] = ..., content_type: _Optional[str] = ..., timestamp_ms: _Optional[int] = ..., source_node_id: _Optional[str] = ..., correlation_id: _Optional[str] = ..., sequence_number: _Optional[int] = ...) -> None: ...

class SubscriptionInfo(_message.Message):
    __slots__ = ("subscription_id", "topics", "timestamp_ms", "gap_detected", "missed_message_count", "replay_started")
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    GAP_DETECTED_FIELD_NUMBER: _ClassVar[int]
    MISSED_MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    REPLAY_STARTED_FIELD_NUMBER: _ClassVar[int]
    subscription_id: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    timestamp_ms: int
    gap_detected: bool
    missed_message_count: int
    replay_started: bool
    def __init__(self, subscription_id: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., timestamp_ms: _Optional[int] = ..., gap_detected: _Optional[bool] = ..., missed_message_count: _Optional[int] = ..., replay_started: _Optional[bool] = ...) -> None: ...

class ReplayComplete(_message.Message):
    __slots__ = ("topic", "replayed_count", "latest_sequence")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_COUNT_FIELD_NUMBER: _ClassVar[int]
    LATEST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    replayed_count: int
    latest_sequence: int
    def __init__(self, topic: _Optional[str] = ..., replayed_count: _Optional[int] = ..., latest_sequence: _Optional[int] = ...) -> None: ...

class BackpressureWarning(_message.Message):
    __slots__ = ("messages_dropped", "queue_depth", "queue_limit", "reason", "messages_expired", "oldest_message_age_ms")
    MESSAGES_DROPPED_FIELD_NUMBER: _ClassVar[int]
    QUEUE_DEPTH_FIELD_NUMBER: _ClassVar[int]
    QUEUE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_EXPIRED_FIELD_NUMBER: _ClassVar[int]
    OLDEST_MESSAGE_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    messages_dropped: int
    queue_depth: int
    queue_limit: int
    reason: str
    messages_expired: int
    oldest_message_age_ms: int
    def __init__(self, messages_dropped: _Optional[int] = ..., queue_depth: _Optional[int] = ..., queue_limit: _Optional[int] = ..., reason: _Optional[str] = ..., messages_expired: _Optional[int] = ..., oldest_message_age_ms: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("timestamp_ms",)
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    timestamp_ms: int
    def __init__(self, timestamp_ms: _Optional[int] = ...) -> None: ...

class UnsubscribeRequest(_message.Message):
    __slots__ = ("subscription_id", "pause")
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    subscription_id: str
    pause: bool
    def __init__(self, subscription_id: _Optional[str] = ..., pause: _Optional[bool] = ...) -> None: ...

class UnsubscribeResponse(_message.Message):
    __slots__ = ("success", "error_message", "pause_ttl_ms")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PAUSE_TTL_MS_FIELD_NUMBER: _ClassVar[int]
    success: bool
    error_message: str
    pause_ttl_ms: int
    def __init__(self, success: _Optional[bool] = ..., error_message: _Optional[str] = ..., pause_ttl_ms: _Optional[int] = ...) -> None: ...

class GetTopicsRequest(_message.Message):
    __slots__ = ("include_counts",)
    INCLUDE_COUNTS_FIELD_NUMBER: _ClassVar[int]
    include_counts: bool
    def __init__(self, include_counts: _Optional[bool] = ...) -> None: ...

class GetTopicsResponse(_message.Message):
    __slots__ = ("topics",)
    class TopicsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.ScalarMap[str, int]
    def __init__(self, topics: _Optional[_Mapping[str, int]] = ...) -> None: ...

class GetPeersRequest(_message.Message):
    __slots__ = ("include_state",)
    INCLUDE_STATE_FIELD_NUMBER: _ClassVar[int]
    include_state: bool
    def __init__(self, include_state: _Optional[bool] = ...) -> None: ...

class GetPeersResponse(_message.Message):
    __slots__ = ("peers",)
    PEERS_FIELD_NUMBER: _ClassVar[int]
    peers: _containers.RepeatedCompositeFieldContainer[PeerInfo]
    def __init__(self, peers: _Optional[_Iterable[_Union[PeerInfo, _Mapping]]] = ...) -> None: ...

class PeerInfo(_message.Message):
    __slots__ = ("instance_uuid", "endpoint", "last_seen_ms", "cluster_id", "topic_state_hash", "topics", "status")
    INSTANCE_UUID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_MS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_STATE_HASH_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    instance_uuid: str
    endpoint: str
    last_seen_ms: int
    cluster_id: str
    topic_state_hash: int
    topics: _containers.RepeatedScalarFieldContainer[str]
    status: str
    def __init__(self, instance_uuid: _Optional[str] = ..., endpoint: _Optional[str] = ..., last_seen_ms: _Optional[int] = ..., cluster_id: _Optional[str] = ..., topic_state_hash: _Optional[int] = ..., topics: _Optional[_Iterable[str]] = ..., status: _Optional[str] = ...) -> None: ...
