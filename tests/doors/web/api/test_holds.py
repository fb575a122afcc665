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
from msgspec import json
from msgspec.structs import replace

from penstock.core.settings import AccessSettings
from penstock.storage.disk.rocksdb.errors import StorageFull
from penstock.storage.disk.rocksdb.store import Changes, Store
from tests.doors.web.logs import KEEP_ALL, LOG, LogSite, log_site
from tests.support.waiting import until

HOLDS = f"{LOG}/holds"
HOUR_S = 3_600.0


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[LogSite]:
    async with log_site(tmp_path / "data") as site:
        for number in range(1, 6):
            await site.publish("plant/a", b"%d" % number)
        yield site


async def create(
    site: LogSite, name: str = "lake", offset: int = 2, lapse_s: float = HOUR_S, **more: Any
) -> httpx.Response:
    body = {"name": name, "cursor": site.cursor(offset), "lapse_s": lapse_s, **more}
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
        "filters": [],
    }
    for _ in range(2):
        listed = (await site.client.get(HOLDS)).json()["holds"]
        assert listed == [{**hold, "lapses_at": lapses_at}]
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

    async def created() -> httpx.Response | None:
        response = await create(site)
        return None if response.status_code == 503 else response

    response = await until(created, "holds are still refused", every_s=0.05)
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
        ({"name": "..", "cursor": here, "lapse_s": 60}, "invalid-hold"),
        ({"name": "a/./b", "cursor": here, "lapse_s": 60}, "invalid-hold"),
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
    for content in (b"", b"{", b'{"name": "\xff"}', '{"name": "a"}'.encode("utf-16"), b"[" * 100_000):
        response = await site.client.post(HOLDS, content=content, headers=headers)
        assert refusal(response) == (400, "invalid-request")
    response = await site.client.put(f"{HOLDS}/lake", content=b"nonsense", headers=headers)
    assert refusal(response) == (400, "invalid-request")


@pytest.mark.parametrize(
    "kind", [None, "application/x-www-form-urlencoded", "application/json; charset=utf-8"]
)
async def test_a_body_is_json_whether_it_says_so_or_not(site: LogSite, kind: str | None) -> None:
    headers = {} if kind is None else {"content-type": kind}
    content = json.encode({"name": "lake", "cursor": site.cursor(2), "lapse_s": HOUR_S})
    made = await site.client.post(HOLDS, content=content, headers=headers)
    assert (made.status_code, made.json()["name"]) == (201, "lake")
    content = json.encode({"cursor": site.cursor(4)})
    moved = await site.client.put(f"{HOLDS}/lake", content=content, headers=headers)
    assert (moved.status_code, moved.json()["offset"]) == (200, 4)


@pytest.mark.parametrize("kind", ["text/csv", "application/xml", "multipart/form-data; boundary=x"])
async def test_a_body_that_says_it_is_something_else_is_refused(site: LogSite, kind: str) -> None:
    response = await site.client.post(HOLDS, content=b"{}", headers={"content-type": kind})
    assert refusal(response) == (415, "unsupported-media")


async def test_a_body_that_is_far_too_long_is_refused(site: LogSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.doors.web.support.requests.MAX_BYTES", 1_000)
    assert refusal(await create(site, "a" * 1_000)) == (413, "too-large")


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


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[LogSite]:
    """Ann and bob may read the plant, eve nothing, and root everything."""
    secret = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1).hash("secret")
    (tmp_path / "users").write_text("".join(f"{user}:{secret}\n" for user in ("ann", "bob", "eve", "root")))
    (tmp_path / "acl").write_text(RULES)
    access = AccessSettings(password_file=str(tmp_path / "users"), acl_file=str(tmp_path / "acl"))
    async with log_site(
        tmp_path / "data", access=access, log=replace(KEEP_ALL, max_holds_per_owner=3)
    ) as site:
        yield site


RULES = """
user ann
subscribe plant/#
user bob
subscribe plant/#
user root
subscribe #
subscribe $SYS/#
"""
PLANT = ["plant/#"]


def become(site: LogSite, user: str) -> None:
    site.client.auth = (user, "secret")


async def test_a_hold_belongs_to_who_made_it(guarded: LogSite) -> None:
    site, client = guarded, guarded.client
    become(site, "ann")
    assert (await create(site, "hers", offset=0, filters=PLANT)).json()["owner"] == "ann"
    become(site, "bob")
    assert refusal(await create(site, "hers", offset=0, filters=PLANT)) == (403, "not-authorized")
    moved = await client.put(f"{HOLDS}/hers", json={"cursor": site.cursor(0)})
    assert refusal(moved) == (403, "not-authorized")
    assert refusal(await client.post(f"{HOLDS}/hers/renew")) == (403, "not-authorized")
    assert refusal(await client.delete(f"{HOLDS}/hers")) == (403, "not-authorized")
    await create(site, "his", offset=0, filters=PLANT)
    assert await names(site) == ["his"]
    become(site, "ann")
    assert await names(site) == ["hers"]
    assert (await client.delete(f"{HOLDS}/hers")).status_code == 204


async def test_who_watches_over_the_server_sees_and_ends_the_holds_of_others(guarded: LogSite) -> None:
    site, client = guarded, guarded.client
    become(site, "ann")
    await create(site, "hers", offset=0, filters=PLANT)
    become(site, "root")
    await create(site, "own", offset=0)
    assert await names(site) == ["hers", "own"]
    assert refusal(await client.post(f"{HOLDS}/hers/renew")) == (403, "not-authorized")
    assert (await client.delete(f"{HOLDS}/hers")).status_code == 204
    assert await names(site) == ["own"]


async def test_nobody_holds_what_it_may_not_read(guarded: LogSite) -> None:
    become(guarded, "eve")
    for filters in ([], ["#"], PLANT):
        assert refusal(await create(guarded, offset=0, filters=filters)) == (403, "not-authorized")
    become(guarded, "ann")
    for filters in ([], ["#"], ["plant/#", "garden"], ["$SYS/#"]):
        assert refusal(await create(guarded, offset=0, filters=filters)) == (403, "not-authorized")
    invalid: list[tuple[object, str]] = [
        (["plant/#/x"], "invalid-filter"),
        (["$share/g/plant/a"], "invalid-filter"),
        (["plant/a"] * 101, "invalid-request"),
        ("plant/#", "invalid-request"),
    ]
    for wrong, code in invalid:
        assert refusal(await create(guarded, offset=0, filters=wrong)) == (400, code)
    assert (await create(guarded, offset=0, filters=["plant/a"])).json()["filters"] == ["plant/a"]


async def test_who_may_not_read_any_more_cannot_go_on_holding(guarded: LogSite, tmp_path: Path) -> None:
    become(guarded, "ann")
    await create(guarded, offset=0, filters=PLANT)
    (tmp_path / "acl").write_text(RULES.replace("plant", "garden"))
    guarded.server.reload()
    assert refusal(await guarded.client.post(f"{HOLDS}/lake/renew")) == (403, "not-authorized")
    moved = await guarded.client.put(f"{HOLDS}/lake", json={"cursor": guarded.cursor(0)})
    assert refusal(moved) == (403, "not-authorized")
    assert (await guarded.client.delete(f"{HOLDS}/lake")).status_code == 204


async def test_one_user_leaves_holds_for_others(guarded: LogSite) -> None:
    become(guarded, "ann")
    codes = [(await create(guarded, name, offset=0, filters=PLANT)).status_code for name in "abcda"]
    assert codes == [201, 201, 201, 429, 201]
    become(guarded, "bob")
    assert (await create(guarded, "d", offset=0, filters=PLANT)).status_code == 201


async def test_no_hold_lasts_longer_than_may_be(site: LogSite) -> None:
    week_s = 7 * 24 * HOUR_S
    assert refusal(await create(site, lapse_s=week_s + 1)) == (400, "invalid-hold")
    assert (await create(site, lapse_s=week_s)).status_code == 201
