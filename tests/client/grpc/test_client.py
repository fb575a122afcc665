"""Specifics of each twin: cancelled tasks, threads, the end of the interpreter."""

import asyncio
import gc
import shutil
import subprocess
import sys
import threading
import weakref
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent
from typing import Any
from uuid import uuid4

import pytest

import penstock
from penstock.client import ClientState, ConnectionLost, CursorFile
from penstock.client.grpc.sync import LoopThread
from penstock.client.grpc.v1.feed import V1Feed
from penstock.errors import PenstockError
from tests.client.grpc.cable import cable_to
from tests.client.grpc.twins import PATIENCE_S, take, texts
from tests.support.servers import bare_environment


def run_python(program: str, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", dedent(program), *words],
        capture_output=True,
        text=True,
        env=bare_environment(),
        timeout=PATIENCE_S * 2,
        check=False,
    )


async def test_a_taker_that_is_cancelled_loses_no_message(address: str) -> None:
    topic = f"clients/{uuid4().hex}"
    async with penstock.connect(address) as client, client.subscribe(topic) as messages:
        for _ in range(3):
            taking = asyncio.create_task(anext(messages))
            await asyncio.sleep(0.01)
            taking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await taking
        with pytest.raises(TimeoutError):
            await messages.receive(timeout_s=0.01)
        await client.publish_many([(topic, str(number)) for number in range(3)])
        assert texts(await take(messages, 3)) == ["0", "1", "2"]


async def test_an_add_that_is_cancelled_is_taken_back(address: str) -> None:
    topic = f"clients/{uuid4().hex}"
    async with penstock.connect(address) as client, client.subscribe(topic) as messages:
        adding = asyncio.create_task(messages.add(f"{topic}/more"))
        await asyncio.sleep(0)
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
        assert messages.filters == (topic,)
        await messages.add(f"{topic}/fence")  # requests are dealt with in order, so it is taken back by now
        await client.publish(f"{topic}/more", "unwanted")
        await client.publish(topic, "wanted")
        assert texts(await take(messages, 1)) == ["wanted"]


async def test_an_add_that_is_cancelled_leaves_filters_that_were_there(address: str) -> None:
    topic = f"clients/{uuid4().hex}"
    async with penstock.connect(address) as client, client.subscribe(topic) as messages:
        adding = asyncio.create_task(messages.add(topic, last=1))
        await asyncio.sleep(0)
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
        assert messages.filters == (topic,)
        await client.publish(topic, "still wanted")
        assert texts(await take(messages, 1)) == ["still wanted"]


@pytest.mark.parametrize("filter", ["\ud800", 5])
async def test_a_filter_that_cannot_be_said_harms_no_other(address: str, filter: str) -> None:
    topic = f"clients/{uuid4().hex}"
    async with penstock.connect(address) as client, client.subscribe(f"{topic}/a") as messages:
        with pytest.raises((UnicodeEncodeError, TypeError)):
            await messages.add(filter)
        with pytest.raises((UnicodeEncodeError, TypeError)):
            await messages.remove(filter)
        async with asyncio.timeout(PATIENCE_S):
            await messages.add(f"{topic}/b")
        await client.publish(f"{topic}/b", "x")
        assert texts(await take(messages, 1)) == ["x"]


async def test_a_subscription_that_was_never_opened_leaves_nothing(address: str) -> None:
    async with penstock.connect(address) as client:
        forgotten = weakref.ref(client.subscribe("clients/forgotten"))
        gc.collect()
        assert forgotten() is None


async def test_a_subscription_that_fails_in_a_way_nobody_foresaw_says_so(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with penstock.connect(address) as client, client.subscribe("clients/odd") as messages:
        monkeypatch.setattr(V1Feed, "_on_event", lambda *_: 1 / 0)
        await client.publish("clients/odd", "x")
        with pytest.raises(PenstockError, match="ZeroDivisionError"):
            await messages.receive(PATIENCE_S)
        with pytest.raises(PenstockError, match="ZeroDivisionError"):
            await messages.add("clients/more")


async def test_a_client_is_used_when_it_was_opened_and_is_opened_once(address: str) -> None:
    client = penstock.connect(address)
    with pytest.raises(ConnectionLost, match="not open"):
        await client.publish("clients/early", "x")
    tasks = asyncio.all_tasks()
    await client.open()
    await client.open()
    await client.close()
    assert "_keep" not in str(asyncio.all_tasks() - tasks)


async def test_a_client_closes_all_it_has_though_a_cursor_cannot_be_kept(
    address: str, tmp_path: Path
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    client = penstock.connect(address)
    await client.open()
    messages = client.subscribe("clients/kept", after=CursorFile(folder / "cursor", every_s=60))
    await messages.open()
    other = client.subscribe("clients/other")
    await other.open()
    shutil.rmtree(folder)
    await client.publish("clients/kept", "x")
    await take(messages, 1)
    messages.confirm()
    with pytest.raises(FileNotFoundError):
        await client.close()
    assert client.state is ClientState.DISCONNECTED
    assert await anext(other, None) is None


async def test_what_went_wrong_with_a_slow_source_is_told_with_its_next_message(address: str) -> None:
    pulled = 0

    async def messages() -> AsyncIterator[tuple[str, str]]:
        nonlocal pulled
        for number in range(20):
            pulled += 1
            yield ("clients/slow", str(number))
            await asyncio.sleep(0.2)
            if number == 1:
                cable.hold()
            elif number == 2:
                cable.cut()

    async with cable_to(int(address.rpartition(":")[2])) as cable, penstock.connect(cable.address) as client:
        with pytest.raises(ConnectionLost):
            await client.publish_many(messages())
    assert pulled <= 6  # the third was lost; eight may be on their way


async def test_messages_of_an_asynchronous_source_are_published(address: str) -> None:
    topic = f"clients/{uuid4().hex}"

    async def source() -> AsyncIterator[tuple[str, str]]:
        for number in range(10):
            await asyncio.sleep(0)
            yield topic, str(number)

    async with penstock.connect(address) as client, client.subscribe(topic) as messages:
        assert (await client.publish_many(source())).accepted == 10
        assert texts(await take(messages, 10)) == [str(number) for number in range(10)]


async def test_a_callback_that_fails_is_told_to_the_loop_and_harms_nobody(address: str) -> None:
    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    def fail(state: ClientState, error: object) -> None:
        raise KeyError(state)

    async with penstock.connect(address, on_state=fail) as client:
        await client.publish("clients/x", "y")
    ours = [each for each in told if "callback of a Penstock client" in str(each["message"])]
    assert [type(each["exception"]) for each in ours] == [KeyError, KeyError], (
        told
    )  # gRPC may tell of its own


def test_several_threads_share_a_synchronous_client(address: str) -> None:
    topic = f"clients/{uuid4().hex}"
    with penstock.connect_sync(address) as client, client.subscribe(topic) as messages:

        def publish(worker: int) -> list[int]:
            return [client.publish(topic, f"{worker}-{number}").sequence for number in range(25)]

        with ThreadPoolExecutor(8) as pool:
            numbers = [number for part in pool.map(publish, range(8)) for number in part]
        got = [messages.receive(PATIENCE_S).text for _ in range(200)]
    assert sorted(numbers) == list(range(1, 201))
    assert sorted(got) == sorted(f"{worker}-{number}" for worker in range(8) for number in range(25))
    for worker in range(8):
        assert [text for text in got if text.startswith(f"{worker}-")] == [
            f"{worker}-{number}" for number in range(25)
        ]


def test_a_synchronous_client_leaves_no_thread(address: str) -> None:
    with penstock.connect_sync(address) as client, client.subscribe("clients/none"):
        assert "penstock-client" in [thread.name for thread in threading.enumerate()]
    assert "penstock-client" not in [thread.name for thread in threading.enumerate()]
    client.close()


def test_a_callback_must_not_wait_for_its_own_client(address: str) -> None:
    raised: list[Exception] = []

    def ask_back(state: ClientState, error: object) -> None:
        try:
            client.publish("clients/x", "y")
        except Exception as problem:
            raised.append(problem)

    client = penstock.connect_sync(address, on_state=ask_back)
    with client:
        pass
    assert isinstance(raised[0], RuntimeError)


def test_a_callback_that_closes_its_client_is_told_off_and_harms_nobody(address: str) -> None:
    raised: list[Exception] = []

    def close(state: ClientState, error: object) -> None:
        try:
            client.close()
        except RuntimeError as problem:
            raised.append(problem)

    client = penstock.connect_sync(address, on_state=close)
    client.open()
    assert client.publish("clients/x", "y").sequence > 0
    client.close()
    assert raised
    assert "penstock-client" not in [thread.name for thread in threading.enumerate()]


def test_a_synchronous_client_is_opened_once(address: str) -> None:
    client = penstock.connect_sync(address)
    client.open()
    client.open()
    assert [thread.name for thread in threading.enumerate()].count("penstock-client") == 1
    client.close()
    assert "penstock-client" not in [thread.name for thread in threading.enumerate()]


def test_who_is_interrupted_while_waiting_finds_the_messages_next_time(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"clients/{uuid4().hex}"
    run = LoopThread.run

    def interrupt(*values: Any) -> None:
        monkeypatch.undo()
        run(*values)
        raise KeyboardInterrupt

    with penstock.connect_sync(address) as client, client.subscribe(topic) as messages:
        client.publish_many([(topic, "1"), (topic, "2")])
        monkeypatch.setattr(LoopThread, "run", interrupt)
        with pytest.raises(KeyboardInterrupt):
            next(messages)
        assert [messages.receive(PATIENCE_S).text for _ in range(2)] == ["1", "2"]


def test_a_fork_is_told_that_the_client_is_not_its_own(address: str) -> None:
    done = run_python(
        """
        import os, sys, warnings
        import penstock

        warnings.simplefilter("ignore")  # to fork with threads is what is tried here
        client = penstock.connect_sync(sys.argv[1])
        client.open()
        child = os.fork()
        if not child:
            try:
                client.publish("clients/fork", "x")
            except penstock.client.ConnectionLost as error:
                sys.exit(7 if "process" in str(error) else 8)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), client.publish("clients/fork", "y").topic)
        """,
        address,
    )
    assert (done.returncode, done.stdout) == (0, "7 clients/fork\n")


def test_a_program_may_end_without_closing_its_client(address: str) -> None:
    done = run_python(
        """
        import logging, sys
        import penstock

        logging.getLogger("asyncio").setLevel(logging.ERROR)  # that a machine is slow is no fault
        client = penstock.connect_sync(sys.argv[1])
        client.open()
        messages = client.subscribe("clients/end")
        messages.open()
        print(client.publish("clients/end", "x").subscribers)
        """,
        address,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_grpc_is_loaded_only_when_it_is_needed() -> None:
    done = run_python(
        """
        import sys
        import penstock.client

        assert "grpc" not in sys.modules
        for name in penstock.client.__all__:
            getattr(penstock.client, name)
        assert "grpc" in sys.modules
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_closed_synchronous_client_says_so() -> None:
    client = penstock.connect_sync("127.0.0.1:1")
    with pytest.raises(ConnectionLost):
        client.publish("a", "b")
