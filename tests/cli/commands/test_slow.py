"""`penstock slow`: who cannot keep up."""

from tests.cli.http_commands import answering, port_of, rows_of, run
from tests.support.servers import RunningServer

SLOW = {
    "client_id": "c",
    "door": "mqtt",
    "is_slow": True,
    "connected": True,
    "recovered": False,
    "waiting_messages": 7,
    "waiting_bytes": 70,
    "oldest_age_s": 1.25,
    "dropped": 3,
    "policy": "drop-newest",
    "since": "2026-01-31T12:00:00.000001Z",
    "last_slow_at": "2026-01-31T12:00:09.000001Z",
}


def test_those_who_are_slow_are_listed() -> None:
    with answering({"slow": [SLOW], "count": 1, "total": 1, "left_out": 0}) as address:
        result = run(port_of(address), "slow")
    assert result.exit_code == 0, result.output
    head, row = (line.split("\t") for line in result.stdout.splitlines())
    shown = dict(zip(head, row, strict=True))
    assert (shown["client_id"], shown["is_slow"], shown["oldest_age_s"]) == ("c", "true", "1.250")
    assert set(shown) <= set(SLOW)


def test_json_has_them_as_the_server_does() -> None:
    with answering({"slow": [SLOW, SLOW], "count": 2}) as address:
        assert rows_of(run(port_of(address), "slow", "-o", "json")) == [SLOW, SLOW]


def test_nobody_is_no_failure() -> None:
    with answering({"slow": []}) as address:
        result = run(port_of(address), "slow")
    assert (result.exit_code, result.stdout.count("\n")) == (0, 1)


def test_on_a_real_server_nobody_is_slow(http_server: RunningServer) -> None:
    assert rows_of(run(http_server.port_of("http"), "slow", "-o", "json")) == []
