"""The settings that a server goes by, over HTTP."""

import httpx

from penstock.core.settings import OutboxSettings
from tests.doors.serving import Start, client_of


async def test_settings_are_told_with_where_they_are_from(start: Start) -> None:
    server = await start(outbox=OutboxSettings(messages=17))
    async with client_of(server) as http:
        answer = await http.get("/api/v1/config")
    assert answer.status_code == httpx.codes.OK
    told = answer.json()
    assert set(told) == {"settings", "origins", "needs_restart"}
    assert told["settings"]["outbox"]["messages"] == 17
    assert told["needs_restart"] == []
