"""The settings that a server goes by, over HTTP."""

from pathlib import Path

import httpx

from penstock.core.settings import AccessSettings, OutboxSettings
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


async def test_a_reload_on_request_reads_the_files_again_or_changes_nothing(
    start: Start, tmp_path: Path
) -> None:
    rules = tmp_path / "acl"
    rules.write_text("anonymous\nboth $SYS/#\n")
    server = await start(access=AccessSettings(acl_file=str(rules)))
    async with client_of(server) as http:
        rules.write_text("anonymous\nnonsense\n")
        answer = await http.post("/api/v1/reload")
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        assert f"nothing was reloaded: {rules}:2" in answer.json()["detail"]
        rules.write_text("anonymous\nsubscribe $SYS/#\n")
        answer = await http.post("/api/v1/reload")
        assert (answer.status_code, answer.json()) == (200, {"applied": [], "needs_restart": []})
        answer = await http.post("/api/v1/reload")
        assert (answer.status_code, answer.json()["code"]) == (403, "not-authorized")
