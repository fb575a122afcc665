"""Patience with a server that is away for a while."""

import ssl
import time
from pathlib import Path
from threading import Event

import pytest

from penstock.client import ConnectionLost, ConnectionRefused, HttpClient, HttpRefused
from penstock.errors import PenstockError
from penstock.spark import connection as module
from penstock.spark.connection import Backoff, Connection, is_transient


def refused(cause: BaseException) -> PenstockError:
    try:
        try:
            raise cause
        except type(cause):
            raise ConnectionRefused("no connection") from None
    except ConnectionRefused as error:
        return error


BUSY = HttpRefused("too many", status=429, code="quota-exceeded", retryable=True)


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (ConnectionLost("cut off"), True),
        (refused(ConnectionRefusedError(111, "refused")), True),
        (refused(ssl.SSLCertVerificationError("unknown issuer")), False),
        (refused(ValueError("not HTTP")), False),
        (ConnectionRefused("not what a server answers"), False),
        (BUSY, True),
        (HttpRefused("draining", status=503, code="shutting-down", retryable=True), True),
        (HttpRefused("a proxy", status=502), True),
        (HttpRefused("no", status=403, code="not-authorized"), False),
        (PenstockError("else"), False),
    ],
)
def test_only_what_passes_by_itself_is_waited_for(error: PenstockError, passes: bool) -> None:
    assert is_transient(error) is passes


class Clock:
    """Time that passes by sleeping."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.pauses: list[float] = []
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += max(seconds, 1e-6)  # less than that would be nothing to a clock that is far on


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def wait_until_it_gives_up(patience: Backoff, error: PenstockError) -> None:
    with pytest.raises(type(error)):
        while True:
            patience.wait(error)


def test_pauses_grow_until_nothing_worked_for_so_long(clock: Clock) -> None:
    wait_until_it_gives_up(Backoff(60, sleep=clock.sleep), ConnectionLost("away"))
    assert clock.now == pytest.approx(60)
    assert clock.pauses[0] <= 0.1
    assert 2.5 <= max(clock.pauses) <= 5


def test_what_works_again_may_fail_again_for_as_long(clock: Clock) -> None:
    patience = Backoff(60, sleep=clock.sleep)
    patience.wait(ConnectionLost("away"))
    clock.now += 59
    patience.reset()
    wait_until_it_gives_up(patience, ConnectionLost("away"))
    assert clock.now == pytest.approx(119.1, abs=0.1)


def test_a_server_without_room_is_waited_for_longer_than_one_that_is_away(clock: Clock) -> None:
    wait_until_it_gives_up(Backoff(60, 600, sleep=clock.sleep), BUSY)
    assert clock.now == pytest.approx(600)


def test_what_does_not_pass_is_said_at_once(clock: Clock) -> None:
    wait_until_it_gives_up(Backoff(60, sleep=clock.sleep), HttpRefused("no", status=403))
    assert clock.pauses == []


def test_no_patience_tries_once(clock: Clock) -> None:
    wait_until_it_gives_up(Backoff(0, sleep=clock.sleep), ConnectionLost("away"))
    assert clock.pauses == []


def test_a_call_is_made_again_until_it_works() -> None:
    left = [ConnectionLost("once"), BUSY]

    def call(client: HttpClient) -> str:
        if left:
            raise left.pop(0)
        return "answer"

    assert Connection(address="http://127.0.0.1:1").retry(call) == "answer"
    assert left == []


def test_the_tasks_of_a_process_share_a_client() -> None:
    one, other = Connection(address="http://127.0.0.1:1"), Connection(address="http://127.0.0.1:1")
    assert one.client() is other.client()
    assert Connection(address="http://127.0.0.1:2").client() is not one.client()


def test_certificates_are_trusted_from_a_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Connection(address="https://127.0.0.1:1", ca_file=str(tmp_path / "none")).client()


def test_nobody_waits_for_a_server_when_the_job_is_to_stop() -> None:
    stopping = Event()
    tries: list[HttpClient] = []

    def call(client: HttpClient) -> None:
        tries.append(client)
        stopping.set()
        raise ConnectionLost("cut off")

    patient = Connection(address="http://127.0.0.1:1", retry_for_s=3600.0)
    with module.stop_waiting_on(stopping), pytest.raises(ConnectionLost):
        patient.retry(call)
    assert len(tries) == 1
