"""The table of this door: every error has its word, and no packet a word it does not know."""

import pytest

from penstock import errors
from penstock.client.errors import ConnectionLost, ConnectionRefused, RequestRefused
from penstock.core.sessions.session import Ending
from penstock.doors.mqtt.reason_codes import (
    ENDING,
    ENDINGS,
    NOT_OF_THIS_DOOR,
    REASONS,
    RETURN_CODES,
    ends_connection,
    reason_of,
    refusal_of,
)
from penstock.errors import PenstockError
from penstock.wire.mqtt import (
    ConnAck,
    Disconnect,
    Packet,
    PacketReader,
    PubAck,
    PubRec,
    ReasonCode,
    ReturnCode,
    SubAck,
    Version,
    encode_packet,
)

OF_CLIENTS = {ConnectionLost.code, ConnectionRefused.code, RequestRefused.code}
"""What only a client can meet."""


def all_errors() -> list[type[PenstockError]]:
    found = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PenstockError)
    ]
    assert len(found) > 5
    return found


def is_known(packet: Packet) -> bool:
    """A client of MQTT 5 understands the packet."""
    reader = PacketReader(1000, Version.V5)
    return reader.feed(encode_packet(packet, Version.V5)) == [packet]


def test_every_error_code_has_its_word_or_cannot_come_up() -> None:
    codes = {kind.code for kind in all_errors()}
    assert codes == set(REASONS) | NOT_OF_THIS_DOOR
    assert not set(REASONS) & NOT_OF_THIS_DOOR
    assert not codes & OF_CLIENTS


def test_every_ending_has_its_word() -> None:
    assert set(ENDINGS) == set(Ending)
    assert all(is_known(Disconnect(reason)) for reason in ENDINGS.values())


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.code)
def test_each_word_is_one_that_the_packet_may_carry(kind: type[PenstockError]) -> None:
    error = kind()
    if kind.code in NOT_OF_THIS_DOOR:
        assert reason_of(error) is ReasonCode.UNSPECIFIED_ERROR
        return
    assert is_known(ConnAck(False, refusal_of(error))) or kind.code == "invalid-filter"
    if ends_connection(error, Version.V5):
        assert is_known(Disconnect(reason_of(error)))
    elif kind.code not in (
        "bad-credentials",
        "client-id-taken",
        "invalid-filter",
    ):  # which no publish can bring about
        assert is_known(PubAck(1, reason_of(error)))
        assert is_known(PubRec(1, reason_of(error)))
    if kind.code in ("invalid-filter", "not-authorized", "quota-exceeded", "internal"):
        assert is_known(SubAck(1, (reason_of(error),)))


def test_mqtt_5_ends_a_connection_only_for_what_an_acknowledgement_cannot_say() -> None:
    ending = {kind.code for kind in all_errors() if ends_connection(kind(), Version.V5)}
    assert ending == ENDING == {"too-large", "shutting-down"}


def test_311_also_ends_it_for_what_may_work_later() -> None:
    ending = {kind.code for kind in all_errors() if ends_connection(kind(), Version.V311)}
    assert ending == ENDING | {"quota-exceeded", "storage-unavailable"}


def test_311_says_later_only_where_that_is_true() -> None:
    for kind in all_errors():
        if kind.code not in NOT_OF_THIS_DOOR:
            is_later = kind.retryable or kind.code == "internal"
            code = RETURN_CODES.get(refusal_of(kind()))
            assert (code is ReturnCode.SERVER_UNAVAILABLE) is is_later, kind.code
