"""Wills: when they are published, and when not."""

from pathlib import Path

import pytest

from penstock.core.access.file_access import FileAccess
from penstock.core.access.identity import Identity
from penstock.errors import InvalidTopic, NotAuthorized
from penstock.model import Properties, Will
from tests.support.broker import Client, Stage

WILL = Will("will", b"gone", qos=0, retain=False)


def delayed(seconds: float) -> Will:
    return Will("will", b"gone", qos=0, retain=False, delay=seconds)


def stage_with_reader() -> tuple[Stage, Client]:
    stage = Stage()
    reader = stage.client("reader")
    reader.subscribe("will", 2)
    return stage, reader


def test_a_will_is_published_when_a_connection_breaks() -> None:
    stage, reader = stage_with_reader()
    stage.client("c", will=WILL).drop()
    stage.settle()
    assert reader.take_payloads() == [b"gone"]


def test_a_will_is_not_published_after_a_goodbye() -> None:
    stage, reader = stage_with_reader()
    stage.client("c", will=WILL, expiry=60.0).disconnect()
    stage.advance(61.0)
    assert reader.take() == []


def test_a_will_keeps_its_qos_its_properties_and_its_lifetime() -> None:
    stage, reader = stage_with_reader()
    properties = Properties(content_type="text/plain")
    will = Will("will", b"gone", qos=1, retain=True, properties=properties, ttl=30.0)
    stage.client("c", will=will).drop()
    stage.settle()
    (delivered,) = reader.take()
    assert (delivered.qos, delivered.left) == (1, 30)
    value = stage.broker.topics["will"].retained
    assert value is not None
    assert (value.run("will").properties, value.client_id) == (properties, "c")


def test_a_delayed_will_waits_its_time() -> None:
    stage, reader = stage_with_reader()
    stage.client("c", will=delayed(10.0), expiry=60.0).drop()
    stage.advance(9.0)
    assert reader.take() == []
    stage.advance(1.0)
    assert reader.take_payloads() == [b"gone"]
    stage.advance(60.0)
    assert reader.take() == []


def test_coming_back_in_time_cancels_a_delayed_will() -> None:
    stage, reader = stage_with_reader()
    stage.client("c", will=delayed(10.0), expiry=60.0).drop()
    stage.advance(9.0)
    back = stage.client("c", clean=False, expiry=60.0)
    stage.advance(100.0)
    assert back.is_known
    assert reader.take() == []


def test_a_delayed_will_comes_no_later_than_the_end_of_its_session() -> None:
    stage, reader = stage_with_reader()
    stage.client("c", will=delayed(100.0), expiry=20.0).drop()
    stage.advance(20.0)
    assert reader.take_payloads() == [b"gone"]


def test_a_delayed_will_of_a_session_without_expiry_comes_at_once() -> None:
    stage, reader = stage_with_reader()
    stage.client("c", will=delayed(100.0)).drop()
    stage.settle()
    assert reader.take_payloads() == [b"gone"]


def test_a_clean_start_ends_the_session_and_brings_its_will() -> None:
    stage, reader = stage_with_reader()
    stage.client("c", will=delayed(100.0), expiry=200.0).drop()
    stage.client("c", clean=True)
    stage.settle()
    assert reader.take_payloads() == [b"gone"]


def test_taking_over_brings_a_will_that_has_no_delay() -> None:
    stage, reader = stage_with_reader()
    stage.client("c", will=WILL, expiry=60.0)
    stage.client("c", clean=False, expiry=60.0)
    stage.settle()
    assert reader.take_payloads() == [b"gone"]


def test_taking_over_cancels_a_will_that_has_one() -> None:
    stage, reader = stage_with_reader()
    stage.client("c", will=delayed(10.0), expiry=60.0)
    stage.client("c", clean=False, expiry=60.0)
    stage.advance(100.0)
    assert reader.take() == []


def test_each_connection_has_a_will_of_its_own() -> None:
    stage, reader = stage_with_reader()
    stage.client("c", will=WILL, expiry=60.0).disconnect()
    second = Will("will", b"second", qos=0, retain=False)
    stage.client("c", clean=False, will=second, expiry=60.0).drop()
    stage.settle()
    assert reader.take_payloads() == [b"second"]


def test_a_will_with_an_empty_payload_may_delete_a_retained_value() -> None:
    stage, _ = stage_with_reader()
    will = Will("will", b"", qos=0, retain=True)
    client = stage.client("c", will=will)
    client.publish("will", b"here", retain=True)
    client.drop()
    assert len(stage.broker.retained) == 0


def test_a_session_that_ends_is_not_said_to_miss_its_own_will() -> None:
    stage, reader = stage_with_reader()
    client = stage.client("c", will=WILL)
    client.subscribe("will")
    client.drop()
    stage.settle()
    assert reader.take_payloads() == [b"gone"]
    assert stage.broker.ledger.total == 0


def test_who_is_away_is_owed_its_own_will() -> None:
    stage, _ = stage_with_reader()
    will = Will("will", b"gone", qos=1, retain=False)
    client = stage.client("c", will=will, expiry=60.0)
    client.subscribe("will", 1)
    client.drop()
    stage.settle()
    back = stage.client("c", clean=False, expiry=60.0)
    stage.settle()
    assert back.take_payloads() == [b"gone"]


def test_a_will_that_could_not_be_published_is_refused_at_once(tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text("anonymous\npublish will\n")
    stage = Stage(access=FileAccess.load(None, rules, allow_anonymous=True))
    identity = Identity(None, "c")
    stage.broker.check_will(identity, WILL)
    for topic, error in (("other", NotAuthorized), ("$SYS/x", NotAuthorized), ("a/#", InvalidTopic)):
        with pytest.raises(error):
            stage.broker.check_will(identity, Will(topic, b"x", qos=0, retain=False))


def test_a_will_whose_right_has_gone_meanwhile_is_in_the_ledger(tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text("anonymous\nboth will\n")
    access = FileAccess.load(None, rules, allow_anonymous=True)
    stage = Stage(access=access)
    reader = stage.client("reader")
    reader.subscribe("will")
    client = stage.client("c", will=WILL)
    client.publish("will", b"still allowed")
    stage.settle()
    rules.write_text("anonymous\nsubscribe will\n")
    access.reload()
    client.drop()
    stage.settle()
    assert reader.take_payloads() == [b"still allowed"]
    (row,) = stage.broker.ledger.rows(client_id="c")
    assert (row.topic, str(row.reason), row.count) == ("will", "not-authorized", 1)
