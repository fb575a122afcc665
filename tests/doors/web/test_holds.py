"""Holds over HTTP: what is promised is stored, and nobody touches what belongs to someone else."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from argon2 import PasswordHasher
from msgspec.structs import replace

from penstock.core.settings import AccessSettings
from penstock.storage.disk.store import Changes, StorageFull, Store
from tests.doors.web.logs import KEEP_ALL, LOG, LogSite, log_site

HOLDS = f"{LOG}/holds"
HOUR_S = 3_600.0


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[LogSite]:
    async with log_site(tmp_path / "data") as site:
        for number in range(1, 6):
            await site.publish("plant/a", b"%d" % number)
        yield site


async def create(
    site: LogSite, name: str = "lake", offset: int = 2, lapse_s: float = HOUR_S
) -> httpx.Response:
    body = {"name": name, "cursor": site.cursor(offset), "lapse_s": lapse_s}
    return await site.client.post(HOLDS, json=body)


async def names(site: LogSite) -> list[str]:
    return [hold["name"] for hold in (await site.client.get(HOLDS)).json()["holds"]]


def refusal(response: httpx.Response) -> tuple[int, str]:
    assert response.headers["content-type"] == "application/problem+json"
    return response.status_code, response.json()["code"]


async def test_a_hold_is_made_listed_moved_renewed_and_released(site: LogSite) -> None:
    made = await create(site)
    assert made.status_code == 201
    hold = made.json()
    lapses_at = hold.pop("lapses_at")
    assert lapses_at.endswith("Z")
    assert hold == {
        "name": "lake",
        "owner": "",
        "cursor": site.cursor(2),
        "offset": 2,
        "lapse_s": HOUR_S,
    }
    listed = (await site.client.get(HOLDS)).json()["holds"]
    assert [(each["name"], each["offset"]) for each in listed] == [("lake", 2)]
    moved = await site.client.put(f"{HOLDS}/lake", json={"cursor": site.cursor(4)})
    assert (moved.status_code, moved.json()["offset"], moved.json()["cursor"]) == (200, 4, site.cursor(4))
    renewed = await site.client.post(f"{HOLDS}/lake/renew")
    assert (renewed.status_code, renewed.json()["offset"]) == (200, 4)
    assert renewed.json()["lapses_at"] > lapses_at
    released = await site.client.delete(f"{HOLDS}/lake")
    assert (released.status_code, released.content) == (204, b"")
    assert await names(site) == []


async def test_a_hold_keeps_what_is_behind_it(site: LogSite) -> None:
    await create(site, offset=2)
    await site.trim(1)
    assert site.disk.first_offset == 3
    await site.client.put(f"{HOLDS}/lake", json={"cursor": site.cursor(4)})
    await site.trim(1)
    assert site.disk.first_offset == 5
    assert refusal(await create(site, "late", offset=2)) == (400, "invalid-cursor")
    moved = await site.client.put(f"{HOLDS}/lake", json={"cursor": site.cursor(1)})
    assert refusal(moved) == (400, "invalid-cursor")


async def test_a_hold_outlives_the_server_from_the_moment_it_is_promised(
    site: LogSite, tmp_path: Path
) -> None:
    assert (await create(site, "one", offset=1)).status_code == 201
    assert (await create(site, "two", offset=2)).status_code == 201
    assert (await site.client.delete(f"{HOLDS}/two")).status_code == 204
    assert (await site.client.put(f"{HOLDS}/one", json={"cursor": site.cursor(3)})).status_code == 200
    shutil.copytree(site.path, tmp_path / "killed")  # nothing of the server's end is in it
    async with log_site(tmp_path / "killed") as again:
        listed = (await again.client.get(HOLDS)).json()["holds"]
        assert [(hold["name"], hold["offset"]) for hold in listed] == [("one", 3)]


async def test_nothing_is_promised_before_it_is_stored(
    site: LogSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, may_write, is_writing = Store.write, Event(), Event()

    def write_later(store: Store, changes: Changes, *, sync: bool) -> None:
        is_writing.set()
        assert may_write.wait(10)
        write(store, changes, sync=sync)

    monkeypatch.setattr(Store, "write", write_later)
    answer = asyncio.create_task(create(site))
    await asyncio.to_thread(is_writing.wait, 10)
    assert await names(site) == ["lake"]
    assert not answer.done()
    may_write.set()
    assert (await answer).status_code == 201


async def test_what_cannot_be_stored_is_said_so(site: LogSite, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(store: Store) -> None:
        raise StorageFull("no room")

    monkeypatch.setattr(Store, "check_space", refuse)
    response = await create(site)
    assert refusal(response) == (503, "storage-unavailable")
    assert response.json()["retryable"]
    monkeypatch.undo()
    while (response := await create(site)).status_code == 503:  # until it is tried again
        await asyncio.sleep(0.05)
    assert response.status_code == 201
    assert await names(site) == ["lake"]


async def test_any_name_that_can_be_printed_will_do(site: LogSite) -> None:
    for name in ("a/b", "a b", "ä", "renew", "100%", "a?b#c"):
        assert (await create(site, name)).status_code == 201
        path = f"{HOLDS}/{quote(name, safe='')}"
        assert (await site.client.post(f"{path}/renew")).json()["name"] == name
        assert (await site.client.put(path, json={"cursor": site.cursor(3)})).json()["offset"] == 3
        assert (await site.client.delete(path)).status_code == 204


async def test_what_makes_no_sense_is_refused(site: LogSite) -> None:
    here, ahead, foreign = site.cursor(1), site.cursor(99), site.cursor(1, log_id="00" * 8)
    cases: list[tuple[Any, str]] = [
        ({"name": "", "cursor": here, "lapse_s": 60}, "invalid-hold"),
        ({"name": "a\nb", "cursor": here, "lapse_s": 60}, "invalid-hold"),
        ({"name": "a" * 201, "cursor": here, "lapse_s": 60}, "invalid-hold"),
        ({"name": "a", "cursor": here, "lapse_s": 0}, "invalid-hold"),
        ({"name": "a", "cursor": here, "lapse_s": 1e99}, "invalid-hold"),
        ({"name": "a", "cursor": "nonsense", "lapse_s": 60}, "invalid-cursor"),
        ({"name": "a", "cursor": ahead, "lapse_s": 60}, "invalid-cursor"),
        ({"name": "a", "cursor": foreign, "lapse_s": 60}, "invalid-cursor"),
        ({"name": "a", "cursor": here}, "invalid-request"),
        ({"name": 1, "cursor": here, "lapse_s": 60}, "invalid-request"),
        ({"name": "a", "cursor": here, "lapse_s": "long"}, "invalid-request"),
        ({"name": "a", "cursor": here, "lapse_s": 60, "colour": "red"}, "invalid-request"),
        ([], "invalid-request"),
    ]
    for body, code in cases:
        assert refusal(await site.client.post(HOLDS, json=body)) == (400, code), body
    assert await names(site) == []


async def test_a_body_that_is_no_json_is_refused(site: LogSite) -> None:
    headers = {"content-type": "application/json"}
    for content in (b"", b"{"):
        response = await site.client.post(HOLDS, content=content, headers=headers)
        assert refusal(response) == (400, "invalid-request")
    response = await site.client.put(f"{HOLDS}/lake", content=b"nonsense", headers=headers)
    assert refusal(response) == (400, "invalid-request")


async def test_a_hold_that_nobody_has_is_not_there(site: LogSite) -> None:
    assert refusal(await site.client.post(f"{HOLDS}/none/renew")) == (404, "unknown-hold")
    assert refusal(await site.client.delete(f"{HOLDS}/none")) == (404, "unknown-hold")
    moved = await site.client.put(f"{HOLDS}/none", json={"cursor": site.cursor(3)})
    assert refusal(moved) == (404, "unknown-hold")


async def test_there_are_no_more_holds_than_may_be(tmp_path: Path) -> None:
    async with log_site(tmp_path / "data", log=replace(KEEP_ALL, max_holds=2)) as site:
        codes = [(await create(site, name, offset=0)).status_code for name in "abca"]
        assert codes == [201, 201, 429, 201]


async def test_a_hold_at_a_cursor_that_was_cut_back_keeps_what_comes_instead(tmp_path: Path) -> None:
    async with log_site(tmp_path / "data") as site:
        await site.publish("plant/a", b"1")
        epoch = site.disk.epoch
    async with log_site(tmp_path / "data") as site:
        await site.publish("plant/a", b"2")
        body = {"name": "lake", "cursor": site.cursor(9, epoch), "lapse_s": HOUR_S}
        assert (await site.client.post(HOLDS, json=body)).json()["offset"] == 1


async def test_a_hold_belongs_to_who_made_it(tmp_path: Path) -> None:
    secret = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1).hash("secret")
    (tmp_path / "users").write_text("".join(f"{user}:{secret}\n" for user in ("ann", "bob", "root")))
    (tmp_path / "acl").write_text("user *\nsubscribe plant/#\n\nuser root\nsubscribe $SYS/#\n")
    access = AccessSettings(password_file=str(tmp_path / "users"), acl_file=str(tmp_path / "acl"))
    async with log_site(tmp_path / "data", access=access) as site:
        client = site.client
        client.auth = ("ann", "secret")
        assert (await create(site, "hers", offset=0)).json()["owner"] == "ann"
        client.auth = ("bob", "secret")
        assert refusal(await create(site, "hers", offset=0)) == (403, "not-authorized")
        moved = await client.put(f"{HOLDS}/hers", json={"cursor": site.cursor(0)})
        assert refusal(moved) == (403, "not-authorized")
        assert refusal(await client.post(f"{HOLDS}/hers/renew")) == (403, "not-authorized")
        assert refusal(await client.delete(f"{HOLDS}/hers")) == (403, "not-authorized")
        await create(site, "his", offset=0)
        assert await names(site) == ["his"]
        client.auth = ("root", "secret")
        assert await names(site) == ["hers", "his"]
        assert refusal(await client.delete(f"{HOLDS}/hers")) == (403, "not-authorized")
        client.auth = ("ann", "secret")
        assert await names(site) == ["hers"]
        assert (await client.delete(f"{HOLDS}/hers")).status_code == 204
