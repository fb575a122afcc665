"""`penstock.testing.server`: a whole server in a test's own process."""

import asyncio
import gc
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client
import paho.mqtt.enums
import paho.mqtt.publish
import paho.mqtt.subscribe
import pytest
from websockets.sync.client import connect as connect_websocket

import penstock
from penstock import testing
from penstock.client import ConnectionLost, HttpRefused, Reconnection
from penstock.errors import InvalidConfig, InvalidFilter
from penstock.testing import RunningServer, server
from penstock.testing.thread import ServerThread
from tests.doors.sidecar.serving import MovableClock
from tests.support.waiting import until_sync

EAGER = Reconnection(initial_s=0.01, max_s=0.05)


@pytest.fixture(scope="module")
def ps() -> Iterator[RunningServer]:
    """One for all who leave it as it is: use topics of your own."""
    with server() as running:
        yield running


def test_public_names_are_what_the_package_says() -> None:
    assert {"server", "RunningServer", "AsyncRunningServer"} <= set(testing.__all__)
    assert all(hasattr(testing, name) for name in testing.__all__)
    with pytest.raises(AttributeError, match="no attribute 'brokers'"):
        testing.brokers  # noqa: B018


# Doors


def test_every_door_is_open_on_a_port_of_its_own(ps: RunningServer) -> None:
    paho.mqtt.publish.single("doors/mqtt", "1", port=ps.mqtt_port)
    with ps.http() as http:
        http.publish("doors/http", 2)
    with ps.connect() as client:
        client.publish("doors/grpc", "3")
    with connect_websocket(ps.websocket_address) as websocket:
        assert "Connected" in str(websocket.recv())
    doors = {message.topic: message.door for message in ps.wait_for_messages("doors/#", 3)}
    assert doors == {"doors/mqtt": "mqtt", "doors/http": "web", "doors/grpc": "sidecar"}
    assert len({ps.mqtt_port, ps.http_port, ps.grpc_port}) == 3
    assert ps.http_address == f"http://127.0.0.1:{ps.http_port}"
    assert str(ps.grpc_port) in repr(ps)


def test_two_servers_are_strangers(ps: RunningServer) -> None:
    with server() as other:
        with other.http() as http:
            http.publish("strangers", 1)
        assert len(other.messages("strangers")) == 1
    assert ps.messages("strangers") == []


def test_a_door_that_is_off_has_no_port() -> None:
    with server(http={"port": "off"}, sidecar={"port": None}) as one:
        assert one.mqtt_port
        with pytest.raises(RuntimeError, match="no grpc port: the settings have closed it"):
            _ = one.grpc_port
        with pytest.raises(RuntimeError, match="no http port"):
            one.http()


# Settings


def test_settings_are_given_in_the_shape_of_the_file() -> None:
    rule = {"filter": "short/#", "ring_messages": 1}
    with server(http={"max_body_bytes": "1K"}, topics=[rule]) as one, one.http() as http:
        with pytest.raises(HttpRefused, match="1024"):
            http.publish("large", payload="x" * 2000)
        settings = one.call(lambda running: running.settings)
    assert (settings.http.max_body_bytes, settings.topics[0].filter) == (1024, "short/#")


def test_a_preset_is_a_start_for_the_rest() -> None:
    with server(preset="hardened", web={"burst": 7}) as one:
        web = one.call(lambda running: running.settings.web)
    assert (web.rate_per_s, web.burst) == (1000, 7)


def test_the_environment_has_no_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_MQTT__MAX_PAYLOAD_BYTES", "5")
    with server() as one:
        assert one.call(lambda running: running.settings.mqtt.max_payload_bytes) > 5


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"mqt": {"port": 1}}, r"mqt\.port: unknown key; did you mean mqtt\.port\?$"),
        ({"mqtt": {"port": "many"}}, r"mqtt\.port: expected a whole number .* got 'many'$"),
        ({"mqtt": 1}, "mqtt: unknown key"),
    ],
)
def test_a_wrong_setting_is_an_exception_before_anything_starts(
    settings: dict[str, Any], complaint: str
) -> None:
    before = threading.active_count()
    with pytest.raises(InvalidConfig, match=complaint):
        server(**settings)
    assert threading.active_count() == before


def test_a_port_in_use_is_an_exception_and_leaves_nothing_behind(ps: RunningServer) -> None:
    before = threading.active_count()
    with pytest.raises(InvalidConfig, match=r"mqtt\.port: cannot listen on .* in use"):
        server(mqtt={"port": ps.mqtt_port}).start()
    assert threading.active_count() == before


def test_time_can_be_handed_in() -> None:
    clock = MovableClock()
    with server(clock=clock) as one, one.http() as http:
        http.publish("fleeting", 1, ttl_ms=60_000)
        assert len(one.messages("fleeting")) == 1
        clock.advance(61)
        assert one.messages("fleeting") == []


# Looking


def test_messages_are_told_in_their_order_with_all_they_have(ps: RunningServer) -> None:
    with ps.http(client_id="plant") as http:
        for number in range(300):  # more than a ring holds
            http.publish(f"order/{number % 3}", {"number": number}, properties={"unit": "bar"})
    found = ps.messages("order/#")
    assert [message.data["number"] for message in found] == list(range(300))
    assert (found[4].topic, found[4].sequence, found[4].client_id) == ("order/1", 2, "plant")
    assert found[4].properties == {"unit": "bar"}
    assert [message.sequence for message in ps.messages("order/2")] == list(range(1, 101))


def test_messages_that_are_gone_are_told_of() -> None:
    with server(log={"capture": []}, ring={"messages": 2}) as one:
        with one.http() as http:
            http.publish_many([{"topic": "short", "data": number} for number in range(5)])
        with pytest.raises(
            LookupError, match=r"'short' is there any more: short up to message 3 \(evicted\)"
        ):
            one.messages("short")


def test_a_filter_that_is_none_is_refused(ps: RunningServer) -> None:
    with pytest.raises(InvalidFilter):
        ps.messages("a/#/b")


def test_messages_that_do_not_come_are_waited_for_in_vain(ps: RunningServer) -> None:
    with pytest.raises(TimeoutError, match=r"0 of 2 messages on 'silence' after 0\.02 s"):
        ps.wait_for_messages("silence", 2, timeout_s=0.02)


def test_subscribers_are_waited_for_at_every_door(ps: RunningServer) -> None:
    def subscribe() -> None:
        time.sleep(0.05)
        client.subscribe("wait/+/x")
        client.loop_start()

    client = paho.mqtt.client.Client(paho.mqtt.enums.CallbackAPIVersion.VERSION2, client_id="waiter")
    client.connect("127.0.0.1", ps.mqtt_port)
    client.loop_start()
    thread = threading.Thread(target=subscribe)
    thread.start()
    assert ps.wait_for_subscribers("wait/+/x") == ["waiter"]
    thread.join()
    with ps.connect() as grpc, grpc.subscribe("wait/a/x"):
        assert len(ps.wait_for_subscribers("wait/a/x", 2)) == 2
        assert ps.subscribers("wait/+/x") == ["waiter"]
    client.disconnect()
    client.loop_stop()
    until_sync(lambda: not ps.subscribers("wait/+/x"), "a subscriber is still there")
    with pytest.raises(TimeoutError, match="0 of 1 subscribers of 'wait/b/x'"):
        ps.wait_for_subscribers("wait/b/x", timeout_s=0.02)


def test_whoever_waits_in_vain_is_told_who_is_there(ps: RunningServer) -> None:
    with ps.connect() as client, client.subscribe("vain/here"):
        ps.wait_for_subscribers("vain/here")
        with pytest.raises(TimeoutError, match=r"after 0.02 s: \S+ to vain/here"):
            ps.wait_for_subscribers("vain/there", timeout_s=0.02)


def test_what_was_dropped_is_told_with_its_reason() -> None:
    with server(outbox={"messages": 1}) as one, one.connect(client_id="slow") as client:
        one.assert_nothing_dropped()
        with client.subscribe("flood", buffer=1):
            for _ in range(20):
                client.publish("flood", b"x" * 100_000)
            rows = one.drops(topic="flood")
            assert {row.reason for row in rows} == {"outbox-full"}
            assert one.drops(client_id="nobody") == []
            with pytest.raises(AssertionError, match=r"flood \d+\.\.\d+: \d+ not delivered to .*outbox-full"):
                one.assert_nothing_dropped()


# Stopping and starting


def test_a_server_comes_back_at_the_same_addresses_and_forgets(ps: RunningServer) -> None:
    with server(http={"port": [0, 0], "admin_port": 0}, mqtt={"websocket_port": 0}) as one:
        addresses = one.addresses
        with one.http() as http:
            http.publish("before", 1)
        one.stop()
        assert not one.is_running
        with pytest.raises(RuntimeError, match="not running"):
            one.messages()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", one.mqtt_port))
        one.start()
        assert one.addresses == addresses
        assert len(addresses) == 6
        assert one.messages() == []


def test_nobody_else_gets_the_ports_of_a_server_that_is_away() -> None:
    with server() as one:
        one.stop()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", one.mqtt_port))
    with socket.socket() as other:
        other.bind(("127.0.0.1", one.mqtt_port))


def test_a_data_directory_is_found_again(tmp_path: Path) -> None:
    with server(data_dir=tmp_path / "data") as one:
        with one.http() as http:
            assert http.publish("kept", 1).stored
        one.restart()
        assert [message.data for message in one.messages("kept")] == [1]


def test_a_client_finds_a_server_that_comes_back() -> None:
    with server() as one, one.connect(reconnection=EAGER) as client, client.subscribe("back/#") as messages:
        one.restart()
        one.wait_for_subscribers("back/#")
        client.publish("back/again", "1")
        assert messages.receive(10).text == "1"


def test_to_stop_twice_is_to_stop_once() -> None:
    one = server()
    with pytest.raises(RuntimeError, match="no mqtt port: the server was not started"):
        _ = one.mqtt_port
    one.start()
    with pytest.raises(RuntimeError, match="running already"):
        one.start()
    one.close()
    one.close()
    assert "not running" in repr(one)


def test_a_client_that_stays_does_not_keep_the_server() -> None:
    with server(shutdown_timeout_s=0.1) as one:
        deaf = socket.create_connection(("127.0.0.1", one.mqtt_port))
        deaf.sendall(bytes.fromhex("10 10 00 04 4d515454 04 02 0000 0004 64656166"))
        assert deaf.recv(4)[0] == 0x20
    assert not one.is_running
    deaf.close()


def test_a_server_that_does_not_stop_tells_what_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.testing.thread.GRACE_S", 0.1)
    dawdling, release = threading.Event(), threading.Event()

    def dawdle(_: object) -> None:
        dawdling.set()
        release.wait()

    one = server(shutdown_timeout_s=0)
    one.start()
    running = one._inner.thread
    caller = threading.Thread(target=one.call, args=(dawdle,))
    caller.start()
    dawdling.wait()
    with pytest.raises(TimeoutError, match=r"the server does not stop; its thread is here:(.|\n)*in dawdle"):
        one.close()
    release.set()
    caller.join()
    running._thread.join(10)
    assert not running._thread.is_alive()


def test_the_servers_own_thread_is_not_made_to_wait_for_itself(ps: RunningServer) -> None:
    with pytest.raises(RuntimeError, match="own thread must not wait"):
        ps.call(lambda _: ps.messages())


def test_what_fails_inside_is_raised_outside(ps: RunningServer) -> None:
    with pytest.raises(ZeroDivisionError):
        ps.call(lambda _: 1 // 0)


def test_threads_may_ask_at_the_same_time(ps: RunningServer) -> None:
    found: list[int] = []
    with ps.http() as http:
        http.publish("threads", 1)

    def look() -> None:
        found.extend(len(ps.messages("threads")) for _ in range(20))

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1] * 80


def test_an_end_by_an_exception_is_an_end() -> None:
    with pytest.raises(ZeroDivisionError), server() as one:
        1 // 0  # noqa: B018
    assert not one.is_running


def test_nothing_is_left_open_by_a_server_that_had_clients() -> None:
    gc.collect()  # what others have left open is theirs
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with server() as one, one.connect() as client, one.http() as http:
            client.publish("warnings", "1")
            http.publish("warnings", 2)
        gc.collect()
    assert [str(each.message) for each in found] == []


# Faults


def test_a_cut_ends_every_connection_without_a_goodbye() -> None:
    will = paho.mqtt.client.Client(paho.mqtt.enums.CallbackAPIVersion.VERSION2, client_id="with-will")
    will.will_set("wills/with-will", "gone")
    lost = threading.Event()
    will.on_disconnect = lambda *_: lost.set()
    with server() as one, one.connect(reconnection=EAGER) as client, client.subscribe("cuts/#") as messages:
        will.connect("127.0.0.1", one.mqtt_port)
        will.loop_start()
        one.wait_for_subscribers("cuts/#")
        until_sync(
            lambda: len(one.call(lambda running: running.broker.sessions)) >= 2, "fewer than 2 sessions"
        )
        assert one.cut() >= 2
        assert lost.wait(10)
        will.loop_stop()
        assert one.wait_for_messages("wills/#")[0].payload == b"gone"
        one.wait_for_subscribers("cuts/#")
        client.publish("cuts/after", "1")
        assert messages.receive(10).text == "1"


def test_a_server_that_is_stalled_says_nothing_until_it_goes_on(ps: RunningServer) -> None:
    with ps.stalled():
        with ps.http(timeout=0.1) as http, pytest.raises(ConnectionLost):
            http.health()
        with pytest.raises(RuntimeError, match="stalled, and cannot be asked"):
            ps.messages()
        with pytest.raises(RuntimeError, match="stalled already"), ps.stalled():
            pass
    with ps.http() as http:
        assert http.health()["status"] == "healthy"


def test_a_stalled_server_can_be_stopped() -> None:
    with server() as one, one.stalled():
        one.stop()
    assert not one.is_running


def test_a_server_without_uvloop_runs_on_the_loop_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "uvloop", None)
    with server() as one, one.http() as http:
        http.publish("plain", 1)
        loop = one.call(lambda _: type(asyncio.get_running_loop()).__module__)
    assert loop.startswith("asyncio")


# In a loop


async def test_a_coroutine_has_the_same_server() -> None:
    async with server() as one:
        async with one.mqtt() as client, one.connect() as other:
            await client.subscribe("loop/#", qos=1)
            assert len(await one.wait_for_subscribers("loop/x")) == 1
            await other.publish("loop/x", "1")
            assert (await client.messages.receive(timeout=10)).payload == b"1"
        assert [message.payload for message in await one.wait_for_messages("loop/#")] == [b"1"]
        one.assert_nothing_dropped()
        port = one.mqtt_port
        await one.restart()
        assert (one.mqtt_port, one.messages()) == (port, [])
        await one.stop()
        await one.start()
    assert not one.is_running


async def test_a_coroutine_does_not_hold_its_own_clients_up_while_it_waits() -> None:
    async with server() as one:

        async def come_later() -> str:
            await asyncio.sleep(0.05)
            async with penstock.connect(one.grpc_address) as client, client.subscribe("later") as messages:
                return (await anext(messages)).text

        coming = asyncio.create_task(come_later())
        await one.wait_for_subscribers("later")
        async with one.connect() as client:
            await client.publish("later", "1")
        assert await coming == "1"
        with pytest.raises(TimeoutError, match="0 of 1 subscribers"):
            await one.wait_for_subscribers("nobody", timeout_s=0.02)
        with pytest.raises(TimeoutError, match="1 of 2 messages"):
            await one.wait_for_messages("later", 2, timeout_s=0.02)


def test_a_start_that_fails_is_told_to_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: ServerThread) -> None:
        _._started.set_exception(MemoryError("no room"))

    monkeypatch.setattr(ServerThread, "_serve", fail)
    with pytest.raises(MemoryError, match="no room"), server():
        pass
