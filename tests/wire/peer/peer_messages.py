"""Messages of the peer protocol, one of each kind, for its tests."""

from penstock.model import Door, Properties
from penstock.runs import Run, Shape
from penstock.wire.peer import (
    Added,
    Ask,
    Batch,
    Fetch,
    Fetched,
    Follow,
    FollowedFilter,
    Heartbeat,
    Hello,
    Message,
    Portion,
    Response,
    Seen,
    Settled,
)
from tests.support.samples import fields_of, make_run

NOON = 1_700_000_000_000_000
PLAIN = Shape("mqtt-3.1.1", Door.MQTT, 0, retain=False, is_plain=True)
PROPERTIES = Properties("text/plain", b"\x00\xff", "reply/to", 1, "id-1", (("k", "v"), ("k", "ü")))


def sample_runs() -> list[Run]:
    """A bare run, a merged one in frames of MQTT, and one with everything."""
    merged = Run("t", b"AxAyAz", 1, 2, 3, PLAIN, client_id="m", published_at=7)
    dressed = make_run(
        "ü/☃", b"payload", qos=2, retain=True, sequence=5, offset=9, properties=PROPERTIES, client_id="é"
    )
    dressed.published_at, dressed.packet_id, dressed.ttl = NOON, 65_535, 4.5
    return [make_run("a/b", b"", qos=1), merged, dressed]


MESSAGES: tuple[Message, ...] = (
    Hello(1, "c1" * 8, "worker-1", 1_795_003_200, 7),
    Heartbeat(),
    Batch(3, 15, 4_711, True, sample_runs()),
    Batch(0, 1, 1, False, []),
    Settled(3, 15, True, 4_000, 4_711),
    Settled(3, 15, False, 1, 1, "too-large"),
    Follow(3, 15, 1, 2, 900, (FollowedFilter("device/+/#", True), FollowedFilter("a", False)), ("b/#",)),
    Added(3, 15, 1, 2, 905),
    Added(3, 15, 1, 0, 0, "quota-exceeded"),
    Portion(3, 15, 2, 950, sample_runs()),
    Seen(3, 15, 2, 950),
    Fetch(3, 8, ((1, 5), (9, 2**63 - 1))),
    Fetched(3, 8, True, sample_runs()),
    Ask(3, 9, "why", b"{}", 2_000),
    Response(9, "", b"[]"),
)


def values_of(message: Message) -> object:
    """Everything that is in a message, for comparison; runs compare by identity."""
    if isinstance(message, Batch):
        head: tuple[object, ...] = (message.shard, message.origin, message.number, message.is_forward)
    elif isinstance(message, Portion):
        head = (message.shard, message.origin, message.epoch, message.offset)
    elif isinstance(message, Fetched):
        head = (message.shard, message.request, message.is_last)
    else:
        return message
    return type(message), head, [run_values(run) for run in message.runs]


def run_values(run: Run) -> dict[str, object]:
    """Fields of a run; its shape without the framing of the protocol that it came by."""
    shape = run.shape
    return fields_of(run) | {"shape": (shape.door, shape.qos, shape.retain)}
