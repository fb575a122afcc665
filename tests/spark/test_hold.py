"""Holds of streams: made, renewed, moved, and made again when they lapsed."""

import asyncio
from pathlib import Path

import pytest

from penstock.client import Hold, HttpRefused
from penstock.spark.connection import Connection, StreamHold
from tests.doors.web.logs import log_site
from tests.spark.conftest import Clock
from tests.spark.servers import LogServer


def hold_of(server: LogServer, name: str, clock: Clock, lapse_s: float = 100.0) -> StreamHold:
    return StreamHold(name, lapse_s, Connection(address=server.address), [f"{name}/#"], now=clock)


def held(server: LogServer, name: str) -> Hold | None:
    with server.client() as client:
        return next((hold for hold in client.holds() if hold.name == name), None)


def test_a_hold_is_made_once_and_renewed_after_a_quarter_of_its_lapse(
    log_server: LogServer, name: str, clock: Clock
) -> None:
    hold, begin = hold_of(log_server, name, clock), log_server.cursor
    hold.keep(begin)
    made = held(log_server, name)
    assert made is not None
    assert (made.cursor, made.lapse_s, made.filters) == (begin, 100.0, (f"{name}/#",))
    clock.now = 24.0
    hold.keep(begin)
    assert held(log_server, name) == made
    clock.now = 25.0
    hold.keep(begin)
    renewed = held(log_server, name)
    assert renewed is not None
    assert renewed.lapses_at > made.lapses_at


def test_a_hold_moves_with_what_was_read(log_server: LogServer, name: str, clock: Clock) -> None:
    hold, begin = hold_of(log_server, name, clock), log_server.cursor
    hold.keep(begin)
    log_server.publish_numbers([name], 3)
    later = log_server.cursor
    hold.move(later)
    moved = held(log_server, name)
    assert moved is not None
    assert moved.cursor == later


def test_a_hold_that_is_gone_is_made_again(log_server: LogServer, name: str, clock: Clock) -> None:
    hold, begin = hold_of(log_server, name, clock), log_server.cursor
    for step in (hold.keep, hold.keep, hold.move):
        clock.now += 50.0
        step(begin)
        with log_server.client() as client:
            client.release(name)
    clock.now += 50.0
    hold.keep(begin)
    assert held(log_server, name) is not None


async def test_a_hold_of_what_has_left_already_waits_for_the_next_commit(tmp_path: Path, name: str) -> None:
    async with log_site(tmp_path) as site:
        begin = site.cursor(0)
        for _ in range(2):
            await site.publish(name, *[b"x" * 100] * 10)
            site.seal()
        await site.trim(1)
        hold = StreamHold(name, 100.0, Connection(address=str(site.client.base_url)), [])
        await asyncio.to_thread(hold.keep, begin)
        assert site.disk.holds.listing() == []
        end = site.cursor(site.disk.last_offset)
        await asyncio.to_thread(hold.move, end)
        assert [each.offset for each in site.disk.holds.listing()] == [site.disk.last_offset]


def test_a_hold_that_is_refused_is_an_error(log_server: LogServer, name: str, clock: Clock) -> None:
    with pytest.raises(HttpRefused, match="lapse"):
        hold_of(log_server, name, clock, lapse_s=1e9).keep(log_server.cursor)
