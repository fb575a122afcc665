# mypy: disable-error-code="type-arg"
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Policy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    POLICY_UNSPECIFIED: _ClassVar[Policy]
    POLICY_DROP_OLDEST: _ClassVar[Policy]
    POLICY_DROP_NEWEST: _ClassVar[Policy]
    POLICY_BLOCK: _ClassVar[Policy]
    POLICY_DISCONNECT: _ClassVar[Policy]
POLICY_UNSPECIFIED: Policy
POLICY_DROP_OLDEST: Policy
POLICY_DROP_NEWEST: Policy
POLICY_BLOCK: Policy
POLICY_DISCONNECT: Policy

class Property(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class Messages(_message.Message):
    __slots__ = ("topic", "payloads", "content_type", "correlation_id", "response_topic", "retain", "ttl_ms", "message_ids", "user_properties")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PAYLOADS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    RETAIN_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    USER_PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    payloads: _containers.RepeatedScalarFieldContainer[bytes]
    content_type: str
    correlation_id: bytes
    response_topic: str
    retain: bool
    ttl_ms: int
    message_ids: _containers.RepeatedScalarFieldContainer[str]
    user_properties: _containers.RepeatedCompositeFieldContainer[Property]
    def __init__(self, topic: _Optional[str] = ..., payloads: _Optional[_Iterable[bytes]] = ..., content_type: _Optional[str] = ..., correlation_id: _Optional[bytes] = ..., response_topic: _Optional[str] = ..., retain: _Optional[bool] = ..., ttl_ms: _Optional[int] = ..., message_ids: _Optional[_Iterable[str]] = ..., user_properties: _Optional[_Iterable[_Union[Property, _Mapping]]] = ...) -> None: ...

class PublishBatch(_message.Message):
    __slots__ = ("batch_id", "messages")
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    batch_id: int
    messages: _containers.RepeatedCompositeFieldContainer[Messages]
    def __init__(self, batch_id: _Optional[int] = ..., messages: _Optional[_Iterable[_Union[Messages, _Mapping]]] = ...) -> None: ...

class PublishAck(_message.Message):
    __slots__ = ("batch_id", "accepted", "placed", "refusals", "cursor")
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    PLACED_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    batch_id: int
    accepted: int
    placed: _containers.RepeatedCompositeFieldContainer[Placed]
    refusals: _containers.RepeatedCompositeFieldContainer[Refusal]
    cursor: str
    def __init__(self, batch_id: _Optional[int] = ..., accepted: _Optional[int] = ..., placed: _Optional[_Iterable[_Union[Placed, _Mapping]]] = ..., refusals: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ..., cursor: _Optional[str] = ...) -> None: ...

class Placed(_message.Message):
    __slots__ = ("index", "sequence", "duplicates", "subscribers", "subscribers_dropped", "subscribers_blocked")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBERS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBERS_DROPPED_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBERS_BLOCKED_FIELD_NUMBER: _ClassVar[int]
    index: int
    sequence: int
    duplicates: int
    subscribers: int
    subscribers_dropped: int
    subscribers_blocked: int
    def __init__(self, index: _Optional[int] = ..., sequence: _Optional[int] = ..., duplicates: _Optional[int] = ..., subscribers: _Optional[int] = ..., subscribers_dropped: _Optional[int] = ..., subscribers_blocked: _Optional[int] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("index", "code", "text")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    index: int
    code: str
    text: str
    def __init__(self, index: _Optional[int] = ..., code: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("request_id", "open", "add", "remove", "credit")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    ADD_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    open: Open
    add: Add
    remove: Remove
    credit: Credit
    def __init__(self, request_id: _Optional[int] = ..., open: _Optional[_Union[Open, _Mapping]] = ..., add: _Optional[_Union[Add, _Mapping]] = ..., remove: _Optional[_Union[Remove, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("client_id", "max_buffer_size", "policy", "credit")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_BUFFER_SIZE_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    max_buffer_size: int
    policy: Policy
    credit: int
    def __init__(self, client_id: _Optional[str] = ..., max_buffer_size: _Optional[int] = ..., policy: _Optional[_Union[Policy, str]] = ..., credit: _Optional[int] = ...) -> None: ...

class Add(_message.Message):
    __slots__ = ("filters", "after", "last", "receive_retained")
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    RECEIVE_RETAINED_FIELD_NUMBER: _ClassVar[int]
    filters: _containers.RepeatedScalarFieldContainer[str]
    after: str
    last: int
    receive_retained: bool
    def __init__(self, filters: _Optional[_Iterable[str]] = ..., after: _Optional[str] = ..., last: _Optional[int] = ..., receive_retained: _Optional[bool] = ...) -> None: ...

class Remove(_message.Message):
    __slots__ = ("filters",)
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    filters: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, filters: _Optional[_Iterable[str]] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: int
    def __init__(self, messages: _Optional[int] = ...) -> None: ...

class SubscribeEvent(_message.Message):
    __slots__ = ("delivery", "opened", "added", "removed", "statement", "refused", "heartbeat", "warning", "withdrawn")
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    ADDED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    WARNING_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    delivery: Delivery
    opened: Opened
    added: Added
    removed: Removed
    statement: Statement
    refused: Refused
    heartbeat: Heartbeat
    warning: Warning
    withdrawn: Withdrawn
    def __init__(self, delivery: _Optional[_Union[Delivery, _Mapping]] = ..., opened: _Optional[_Union[Opened, _Mapping]] = ..., added: _Optional[_Union[Added, _Mapping]] = ..., removed: _Optional[_Union[Removed, _Mapping]] = ..., statement: _Optional[_Union[Statement, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., warning: _Optional[_Union[Warning, _Mapping]] = ..., withdrawn: _Optional[_Union[Withdrawn, _Mapping]] = ...) -> None: ...

class Opened(_message.Message):
    __slots__ = ("session_id", "node_id", "cursor")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    node_id: str
    cursor: str
    def __init__(self, session_id: _Optional[str] = ..., node_id: _Optional[str] = ..., cursor: _Optional[str] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("runs", "cursor")
    RUNS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[Run]
    cursor: str
    def __init__(self, runs: _Optional[_Iterable[_Union[Run, _Mapping]]] = ..., cursor: _Optional[str] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("topic", "payloads", "sequence", "epoch", "published_at_us", "content_type", "correlation_id", "response_topic", "message_id", "user_properties", "qos", "is_retained", "is_replay")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PAYLOADS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_AT_US_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    USER_PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    QOS_FIELD_NUMBER: _ClassVar[int]
    IS_RETAINED_FIELD_NUMBER: _ClassVar[int]
    IS_REPLAY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    payloads: _containers.RepeatedScalarFieldContainer[bytes]
    sequence: int
    epoch: int
    published_at_us: int
    content_type: str
    correlation_id: bytes
    response_topic: str
    message_id: str
    user_properties: _containers.RepeatedCompositeFieldContainer[Property]
    qos: int
    is_retained: bool
    is_replay: bool
    def __init__(self, topic: _Optional[str] = ..., payloads: _Optional[_Iterable[bytes]] = ..., sequence: _Optional[int] = ..., epoch: _Optional[int] = ..., published_at_us: _Optional[int] = ..., content_type: _Optional[str] = ..., correlation_id: _Optional[bytes] = ..., response_topic: _Optional[str] = ..., message_id: _Optional[str] = ..., user_properties: _Optional[_Iterable[_Union[Property, _Mapping]]] = ..., qos: _Optional[int] = ..., is_retained: _Optional[bool] = ..., is_replay: _Optional[bool] = ...) -> None: ...

class Added(_message.Message):
    __slots__ = ("request_id", "filters", "cursor", "replay_started")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    REPLAY_STARTED_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    filters: _containers.RepeatedScalarFieldContainer[str]
    cursor: str
    replay_started: bool
    def __init__(self, request_id: _Optional[int] = ..., filters: _Optional[_Iterable[str]] = ..., cursor: _Optional[str] = ..., replay_started: _Optional[bool] = ...) -> None: ...

class Removed(_message.Message):
    __slots__ = ("request_id", "filters")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    filters: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, request_id: _Optional[int] = ..., filters: _Optional[_Iterable[str]] = ...) -> None: ...

class Statement(_message.Message):
    __slots__ = ("request_id", "after", "next", "served", "missing", "gaps")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    SERVED_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    GAPS_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    after: str
    next: str
    served: int
    missing: _containers.RepeatedCompositeFieldContainer[Missing]
    gaps: _containers.RepeatedCompositeFieldContainer[Gap]
    def __init__(self, request_id: _Optional[int] = ..., after: _Optional[str] = ..., next: _Optional[str] = ..., served: _Optional[int] = ..., missing: _Optional[_Iterable[_Union[Missing, _Mapping]]] = ..., gaps: _Optional[_Iterable[_Union[Gap, _Mapping]]] = ...) -> None: ...

class Missing(_message.Message):
    __slots__ = ("topic", "first", "last", "reason")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    topic: str
    first: int
    last: int
    reason: str
    def __init__(self, topic: _Optional[str] = ..., first: _Optional[int] = ..., last: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Gap(_message.Message):
    __slots__ = ("first", "last", "reason")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    reason: str
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("request_id", "code", "text")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    code: str
    text: str
    def __init__(self, request_id: _Optional[int] = ..., code: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("timestamp_ms", "cursor")
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    timestamp_ms: int
    cursor: str
    def __init__(self, timestamp_ms: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class Warning(_message.Message):
    __slots__ = ("messages_dropped", "messages_expired", "queue_depth", "queue_limit", "reason", "oldest_message_age_ms")
    MESSAGES_DROPPED_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_EXPIRED_FIELD_NUMBER: _ClassVar[int]
    QUEUE_DEPTH_FIELD_NUMBER: _ClassVar[int]
    QUEUE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    OLDEST_MESSAGE_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    messages_dropped: int
    messages_expired: int
    queue_depth: int
    queue_limit: int
    reason: str
    oldest_message_age_ms: int
    def __init__(self, messages_dropped: _Optional[int] = ..., messages_expired: _Optional[int] = ..., queue_depth: _Optional[int] = ..., queue_limit: _Optional[int] = ..., reason: _Optional[str] = ..., oldest_message_age_ms: _Optional[int] = ...) -> None: ...

class Withdrawn(_message.Message):
    __slots__ = ("filters", "code")
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    filters: _containers.RepeatedScalarFieldContainer[str]
    code: str
    def __init__(self, filters: _Optional[_Iterable[str]] = ..., code: _Optional[str] = ...) -> None: ...

class WhyRequest(_message.Message):
    __slots__ = ("topic", "sequence", "client_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    sequence: int
    client_id: str
    def __init__(self, topic: _Optional[str] = ..., sequence: _Optional[int] = ..., client_id: _Optional[str] = ...) -> None: ...

class WhyResponse(_message.Message):
    __slots__ = ("code", "text", "newest", "message", "rows", "waiting", "filters", "rows_forgotten", "is_truncated")
    CODE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    IS_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    code: str
    text: str
    newest: int
    message: Published
    rows: _containers.RepeatedCompositeFieldContainer[LedgerRow]
    waiting: _containers.RepeatedCompositeFieldContainer[Waiting]
    filters: _containers.RepeatedScalarFieldContainer[str]
    rows_forgotten: int
    is_truncated: bool
    def __init__(self, code: _Optional[str] = ..., text: _Optional[str] = ..., newest: _Optional[int] = ..., message: _Optional[_Union[Published, _Mapping]] = ..., rows: _Optional[_Iterable[_Union[LedgerRow, _Mapping]]] = ..., waiting: _Optional[_Iterable[_Union[Waiting, _Mapping]]] = ..., filters: _Optional[_Iterable[str]] = ..., rows_forgotten: _Optional[int] = ..., is_truncated: _Optional[bool] = ...) -> None: ...

class Published(_message.Message):
    __slots__ = ("published_at_us", "client_id", "qos", "retain", "door", "offset", "missing")
    PUBLISHED_AT_US_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    QOS_FIELD_NUMBER: _ClassVar[int]
    RETAIN_FIELD_NUMBER: _ClassVar[int]
    DOOR_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    published_at_us: int
    client_id: str
    qos: int
    retain: bool
    door: str
    offset: int
    missing: str
    def __init__(self, published_at_us: _Optional[int] = ..., client_id: _Optional[str] = ..., qos: _Optional[int] = ..., retain: _Optional[bool] = ..., door: _Optional[str] = ..., offset: _Optional[int] = ..., missing: _Optional[str] = ...) -> None: ...

class LedgerRow(_message.Message):
    __slots__ = ("topic", "client_id", "reason", "policy", "setting", "first", "last", "count", "first_at_us", "last_at_us")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    SETTING_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    FIRST_AT_US_FIELD_NUMBER: _ClassVar[int]
    LAST_AT_US_FIELD_NUMBER: _ClassVar[int]
    topic: str
    client_id: str
    reason: str
    policy: str
    setting: str
    first: int
    last: int
    count: int
    first_at_us: int
    last_at_us: int
    def __init__(self, topic: _Optional[str] = ..., client_id: _Optional[str] = ..., reason: _Optional[str] = ..., policy: _Optional[str] = ..., setting: _Optional[str] = ..., first: _Optional[int] = ..., last: _Optional[int] = ..., count: _Optional[int] = ..., first_at_us: _Optional[int] = ..., last_at_us: _Optional[int] = ...) -> None: ...

class Waiting(_message.Message):
    __slots__ = ("client_id", "place", "ahead", "is_connected")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    AHEAD_FIELD_NUMBER: _ClassVar[int]
    IS_CONNECTED_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    place: str
    ahead: int
    is_connected: bool
    def __init__(self, client_id: _Optional[str] = ..., place: _Optional[str] = ..., ahead: _Optional[int] = ..., is_connected: _Optional[bool] = ...) -> None: ...
