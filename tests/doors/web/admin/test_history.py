"""Rates of the last hour over HTTP, for administrators."""

from pathlib import Path

import httpx

from penstock.app import Server
from penstock.core.settings import AccessSettings
from penstock.telemetry.history import INTERVAL_S
from tests.doors.serving import EVERYTHING, Start, client_of


def sample(server: Server) -> None:
    """Let the next point be due."""
    history = server._metrics.history
    history._due_at -= INTERVAL_S
    history._sampled_at -= INTERVAL_S
    history.sample()


async def test_rates_are_there_by_door_and_null_before_the_start(start: Start, tmp_path: Path) -> None:
    server = await start(data_dir=str(tmp_path / "data"), log=EVERYTHING)
    async with client_of(server) as http:
        for _ in range(30):
            await http.post("/api/v1/publish", json={"topic": "a", "data": 1})
        sample(server)
        history = (await http.get("/api/v1/history")).json()
    assert (history["interval_s"], history["points"]) == (10, 360)
    series = history["series"]
    assert set(series) == {
        "published",
        "delivered",
        "dropped",
        "connections",
        "bytes_received",
        "bytes_sent",
        "loop_lag_ms",
        "log_bytes",
    }
    every = [*series["published"].values(), *series["delivered"].values()]
    every += [points for name, points in series.items() if name not in ("published", "delivered")]
    assert {len(points) for points in every} == {360}
    assert {points[-2] for points in every} == {None}
    assert set(series["published"]) == {"mqtt", "sidecar", "web", "streams"}
    assert 0 < series["published"]["web"][-1] <= 3
    assert series["published"]["mqtt"][-1] == 0
    assert series["connections"][-1] == 1
    assert series["bytes_received"][-1] > 0
    assert series["log_bytes"][-1] is not None


async def test_the_server_samples_by_itself(server: Server, http: httpx.AsyncClient) -> None:
    before = (await http.get("/api/v1/history")).json()["now"]
    server._metrics.history._due_at -= INTERVAL_S
    server._lag.on_sample()
    after = (await http.get("/api/v1/history")).json()
    assert after["now"] > before
    assert after["series"]["loop_lag_ms"][-1] is not None


async def test_only_administrators_see_it(start: Start, tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("anonymous\nboth #\n")
    server = await start(access=AccessSettings(acl_file=str(tmp_path / "acl")))
    async with client_of(server) as http:
        answer = await http.get("/api/v1/history")
        assert (answer.status_code, answer.json()["code"]) == (403, "not-authorized")
