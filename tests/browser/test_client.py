"""penstock.js in a page: subscribe, publish, and what it says when something is refused."""

from pathlib import Path
from signal import SIGHUP

import httpx
import pytest

from penstock.core.access.passwords import hash_password
from tests.browser.clients import CONNECT
from tests.browser.pages import Page, PageError
from tests.browser.places import address_of, publish
from tests.support.servers import RunningServer, StartServer


@pytest.fixture(scope="module")
def free_server(start_server: StartServer) -> RunningServer:
    """A server where pages may publish to topics that nobody has made."""
    return start_server({"http": {"port": 0}, "web": {"explicit_topics": False}})


@pytest.fixture
def client(page: Page, free_server: RunningServer) -> Page:
    """A page with a client."""
    page.open(free_server).run(CONNECT)
    page.run('await states.until("open");')
    return page


def test_a_publication_is_acknowledged(client: Page) -> None:
    ack = client.run('return await client.publish("acked", { celsius: 21.5 });')
    assert (ack["request_type"], ack["topic"]) == ("publish", "acked")
    assert ack["message"] == "Published to 0 subscriber(s)"
    client.run('await client.subscribe("acked", keep);')
    assert client.run('return (await client.publish("acked", 1)).message;') == "Published to 1 subscriber(s)"
    assert client.run("return await box.take(1);") == [["acked", 1]]


def test_a_handler_gets_what_the_message_is(client: Page, free_server: RunningServer) -> None:
    client.run('await client.subscribe("whole", box.put);')
    [cursor] = publish(free_server, "whole", {"a": [1, None]})
    [message] = client.run("return await box.take(1);")
    assert message.pop("id")
    assert message == {"topic": "whole", "data": {"a": [1, None]}, "sequence": 1, "cursor": cursor}


def test_bytes_come_as_bytes(client: Page, free_server: RunningServer) -> None:
    client.run(
        'await client.subscribe("bytes", ({ data }) => box.put([data instanceof Uint8Array, [...data]]));'
    )
    client.run('await client.publish("bytes", new Uint8Array([0, 255, 10]));')
    url = f"{address_of(free_server)}/api/v1/publish?topic=bytes"
    httpx.post(url, content=b"\xfe\x01", timeout=20, trust_env=False).raise_for_status()
    assert client.run("return await box.take(2);") == [[True, [0, 255, 10]], [True, [254, 1]]]


def test_text_comes_as_text_and_is_told_from_a_json_string(client: Page, free_server: RunningServer) -> None:
    client.run('await client.subscribe("text", ({ data, encoding }) => box.put([data, encoding ?? null]));')
    url = f"{address_of(free_server)}/api/v1/publish?topic=text"
    for payload in (b"frost tonight", b'"frost"'):
        httpx.post(url, content=payload, timeout=20, trust_env=False).raise_for_status()
    assert client.run("return await box.take(2);") == [["frost tonight", "text"], ["frost", None]]


def test_what_two_filters_match_comes_once_to_each(client: Page) -> None:
    got = client.run(
        """
        const [wide, narrow, other] = [new Box(), new Box(), new Box()];
        await client.subscribe("two/#", ({ topic }) => wide.put(topic));
        await client.subscribe("two/+/b", ({ topic }) => narrow.put(topic));
        await client.subscribe("three/b", ({ topic }) => other.put(topic));
        for (const topic of ["two/a", "two/a/b", "three/a", "three/b", "two"]) await client.publish(topic, 0);
        const taken = [await wide.take(3), await narrow.take(1), await other.take(1)];
        return [...taken, wide.items, narrow.items, other.items];
        """
    )
    assert got == [["two/a", "two/a/b", "two"], ["two/a/b"], ["three/b"], [], [], []]


def test_the_last_messages_come_before_the_new_ones(client: Page, free_server: RunningServer) -> None:
    publish(free_server, "past/a", 1, 2, 3)
    client.run('await client.subscribe("past/#", keep, { lastN: 2 }); await client.publish("past/b", 4);')
    assert client.run("return await box.take(3);") == [["past/a", 2], ["past/a", 3], ["past/b", 4]]


def test_a_subscription_goes_on_behind_a_cursor(client: Page, free_server: RunningServer) -> None:
    first, *_ = publish(free_server, "after", 1, 2, 3)
    client.run('window.subscription = await client.subscribe("after", keep, { after: given[0] });', first)
    assert client.run("return await box.take(2);") == [["after", 2], ["after", 3]]
    [last] = publish(free_server, "after", 4)
    assert client.run("await box.take(1); return subscription.cursor;") == last


def test_a_replay_beside_a_live_filter_gives_each_its_own(client: Page, free_server: RunningServer) -> None:
    first, *_ = publish(free_server, "beside/a", *range(20))
    got = client.run(
        """
        const [live, replayed] = [new Box(), new Box()];
        const number = (box) => ({ data }) => box.put(data);
        await client.subscribe("beside/#", number(live));
        const acks = [];
        for (let each = 20; each < 50; each++) acks.push(client.publish("beside/a", each));
        const joined = client.subscribe("beside/a", number(replayed), { after: given[0] });
        for (let each = 50; each < 80; each++) acks.push(client.publish("beside/a", each));
        await Promise.all([joined, ...acks]);
        return [await live.take(60), await replayed.take(79), live.items, replayed.items];
        """,
        first,
    )
    assert got == [list(range(20, 80)), list(range(1, 80)), [], []]


def test_a_handler_is_not_called_after_it_has_left(client: Page) -> None:
    client.run('window.subscription = await client.subscribe("left/#", keep);')
    client.run('await client.publish("left/a", 1);')
    assert client.run("return await box.take(1);") == [["left/a", 1]]  # an event follows its ack
    client.run('await client.unsubscribe("left/#");')
    ack = client.run('return await client.publish("left/a", 2);')
    assert ack["message"] == "Published to 0 subscriber(s)"
    client.run('await client.subscribe("left/#", keep); await client.publish("left/a", 3);')
    assert client.run("return [await box.take(1), box.items];") == [[["left/a", 3]], []]


def test_who_is_ended_by_another_handler_gets_nothing_more(client: Page) -> None:
    got = client.run(
        """
        await client.subscribe("both/#", (message) => { keep(message); client.unsubscribe("both/a"); });
        await client.subscribe("both/a", () => box.put("after it has left"));
        await client.publish("both/a", 1);
        await client.publish("both/a", 2);
        return [await box.take(2), box.items];
        """
    )
    assert got == [[["both/a", 1], ["both/a", 2]], []]


def test_who_leaves_at_once_and_comes_back_gets_nothing_of_before(client: Page) -> None:
    got = client.run(
        """
        const old = client.subscribe("again", () => box.put("old")).catch(({ code }) => code);
        const sent = client.publish("again", 1);
        client.unsubscribe("again");
        await client.subscribe("again", keep);
        await sent;
        await client.publish("again", 2);
        return [await old, await box.take(1), box.items];
        """
    )
    assert got == ["SUBSCRIBE_FAILED", [["again", 2]], []]


def test_a_refusal_of_before_does_not_end_what_came_after(client: Page) -> None:
    got = client.run(
        """
        const first = client.subscribe("same", keep, { after: "none" }).catch(({ code }) => code);
        client.unsubscribe("same");
        await client.subscribe("same", keep);
        await client.publish("same", 1);
        return [await first, await box.take(1)];
        """
    )
    assert got == ["SUBSCRIBE_FAILED", [["same", 1]]]


@pytest.mark.parametrize(
    ("call", "code", "detail"),
    [
        ('client.subscribe("a/#/b", keep)', "SUBSCRIBE_FAILED", "invalid-filter"),
        ('client.subscribe("much", keep, { lastN: 100_000 })', "VALIDATION_ERROR", None),
        ('client.subscribe("$share/g/a", keep)', "SUBSCRIBE_FAILED", None),
        (
            'client.subscribe("twice", keep).then(() => client.subscribe("twice", keep))',
            "SUBSCRIBE_FAILED",
            None,
        ),
        ('client.publish("with/#", 1)', "INVALID_TOPIC", "invalid-topic"),
        ('client.publish("nothing", undefined)', "VALIDATION_ERROR", None),
    ],
)
def test_a_promise_says_what_was_refused(client: Page, call: str, code: str, detail: str | None) -> None:
    with pytest.raises(PageError) as refused:
        client.run(f"await {call};")
    assert (refused.value.code, refused.value.details.get("code")) == (code, detail)
    assert client.run('return (await client.publish("goes/on", 1)).type;') == "ack"


def test_what_cannot_be_written_as_json_is_not_sent(client: Page) -> None:
    with pytest.raises(PageError, match="BigInt"):
        client.run('await client.publish("big", 1n);')
    assert client.run('return (await client.publish("goes/on", 1)).type;') == "ack"


def test_a_handler_that_fails_fails_alone(client: Page) -> None:
    got = client.run(
        """
        const seen = new Box();
        addEventListener("error", () => seen.put("seen"));
        await client.subscribe("fails/#", () => { throw new Error("mine"); });
        await client.subscribe("fails/a", keep);
        await client.publish("fails/a", 1);
        return [await box.take(1), await seen.take(1)];
        """
    )
    assert got == [[["fails/a", 1]], ["seen"]]


def test_topics_have_to_be_made_where_the_server_wants_it(page: Page, web_server: RunningServer) -> None:
    page.open(web_server).run(CONNECT)
    with pytest.raises(PageError) as refused:
        page.run('await client.publish("unmade", 1);')
    assert refused.value.code == "TOPIC_NOT_FOUND"
    page.run('await client.subscribe("unmade", keep);')  # it may be made later
    publish(web_server, "unmade", 2)
    assert page.run("return await box.take(1);") == [["unmade", 2]]


def test_a_page_is_told_that_its_topic_was_deleted(client: Page, free_server: RunningServer) -> None:
    publish(free_server, "doomed", 1)
    client.run('await client.subscribe("doomed", keep); await client.subscribe("doomed/#", keep);')
    httpx.delete(f"{address_of(free_server)}/topics/doomed", timeout=20, trust_env=False).raise_for_status()
    end = {"filter": "doomed", "code": "TOPIC_DELETED", "message": "Topic 'doomed' was deleted"}
    assert client.run("return await ends.take(1);") == [end]
    client.run('await client.subscribe("doomed", keep);')  # it may come again


def test_a_page_is_told_that_it_may_not_listen_any_more(
    page: Page, start_server: StartServer, tmp_path: Path
) -> None:
    rules = tmp_path / "acl"
    rules.write_text("anonymous\nboth #\n")
    access = {"acl_file": str(rules), "allow_anonymous": True}
    server = start_server({"http": {"port": 0}, "access": access})
    page.open(server).run(CONNECT)
    page.run('await client.subscribe("secret/#", keep);')
    rules.write_text("anonymous\nboth open/#\n")
    server.process.send_signal(SIGHUP)
    [end] = page.run("return await ends.take(1);")
    assert (end["filter"], end["code"]) == ("secret/#", "NOT_AUTHORIZED")


def test_what_a_topic_has_lost_is_told(page: Page, start_server: StartServer) -> None:
    server = start_server({"http": {"port": 0}, "topics": [{"filter": "#", "ring_messages": 2}]})
    first, *_ = publish(server, "short", 1, 2, 3, 4, 5)
    page.open(server).run(CONNECT)
    page.run('await client.subscribe("short", keep, { after: given[0] });', first)
    assert page.run("return await box.take(2);") == [["short", 4], ["short", 5]]
    [gap] = page.run("return await gaps.take(1);")
    assert gap["filter"] == "short" and not gap["statement"]["is_complete"]
    [missing] = gap["statement"]["missing"]
    assert (missing["topic"], missing["last"], missing["reason"]) == ("short", 3, "evicted")


def test_subscriptions_beyond_the_rate_come_a_little_later(page: Page, start_server: StartServer) -> None:
    server = start_server({"http": {"port": 0}, "web": {"rate_per_s": 20, "burst": 1}})
    page.open(server).run(CONNECT)
    page.run('await Promise.all(["a", "b", "c", "d"].map((name) => client.subscribe(name, keep)));')
    for name in "abcd":
        publish(server, name, name)
    assert page.run("return await box.take(4);") == [[name, name] for name in "abcd"]


def test_a_token_says_who_the_page_is(page: Page, start_server: StartServer, tmp_path: Path) -> None:
    (tmp_path / "passwords").write_text(f"maria:{hash_password(b'secret')}\n")
    access = {"password_file": str(tmp_path / "passwords")}
    server = start_server({"http": {"port": 0}, "access": access, "web": {"explicit_topics": False}})
    page.open(server).run(CONNECT, {"token": "bWFyaWE6c2VjcmV0"})
    assert page.run('return (await client.publish("mine", 1)).type;') == "ack"
    assert page.run("return states.items;") == ["connecting", "open"]
    assert "bWFyaWE6c2VjcmV0" not in server.logged


@pytest.mark.parametrize("token", ["bWFyaWE6d3Jvbmc=", "gibberish", None], ids=["wrong", "none", "missing"])
def test_who_is_not_let_in_is_told_and_does_not_try_again(
    page: Page, start_server: StartServer, tmp_path: Path, token: str | None
) -> None:
    (tmp_path / "passwords").write_text(f"maria:{hash_password(b'secret')}\n")
    server = start_server({"http": {"port": 0}, "access": {"password_file": str(tmp_path / "passwords")}})
    page.open(server).run(CONNECT, {"token": token})
    got = page.run(
        """
        const code = (promise) => promise.then(() => "done", ({ code }) => code);
        const early = [code(client.subscribe("a", keep)), code(client.publish("a", 1))];
        const told = await errors.take(1);
        const late = [code(client.subscribe("b", keep)), code(client.publish("b", 1))];
        return [told, await Promise.all([...early, ...late]), client.state, states.items, errors.items];
        """
    )
    assert got == [["BAD_CREDENTIALS"], ["BAD_CREDENTIALS"] * 4, "closed", ["connecting", "closed"], []]


def test_a_page_that_the_server_does_not_know_is_told_once_and_goes_on_trying(
    page: Page, free_server: RunningServer, web_server: RunningServer
) -> None:
    page.open(free_server).run(CONNECT.replace('"/ws"', "given[1]"), {}, address_of(web_server))
    tries = page.run("return await states.take(6);")
    assert tries == ["connecting", "waiting"] * 3
    assert page.run("client.close(); return errors.items;") == ["ORIGIN_UNKNOWN"]


@pytest.mark.parametrize("answer", ["null", "{ status: 503 }"], ids=["nobody is there", "it is too busy"])
@pytest.mark.parametrize(
    "told", ["this.onerror(); this.onclose?.()", "this.onerror()"], ids=["browser", "node"]
)
def test_what_may_pass_is_tried_again_and_no_error(
    page: Page, web_server: RunningServer, answer: str, told: str
) -> None:
    page.open(web_server).run(
        f"""
        window.asked = [];
        window.fetch = async (_, {{ mode }}) => {{ asked.push(mode); return {answer} ?? Promise.reject(); }};
        window.WebSocket = class {{ constructor() {{ setTimeout(() => {{ {told}; }}); }} close() {{}} }};
        """
    )
    page.run(CONNECT)
    got = page.run("const tries = await states.take(6); client.close(); return [tries, errors.items, asked];")
    assert got[:2] == [["connecting", "waiting"] * 3, []]
    assert got[2].count("cors") == 3


def test_nobody_connects_where_there_is_no_websocket(page: Page, web_server: RunningServer) -> None:
    page.open(web_server).run("window.WebSocket = undefined;")
    with pytest.raises(PageError) as refused:
        page.run("script.connect();")
    assert refused.value.code == "UNSUPPORTED"


def test_a_client_that_was_closed_refuses_everything(client: Page) -> None:
    got = client.run(
        """
        const code = (promise) => promise.then(() => "done", ({ code }) => code);
        await client.subscribe("closed", keep);
        const asked = code(client.subscribe("closing", keep));
        client.close();
        const later = [code(client.subscribe("late", keep)), code(client.publish("late", 1))];
        return [await Promise.all([asked, ...later]), client.state, states.items];
        """
    )
    assert got == [["CLOSED", "CLOSED", "CLOSED"], "closed", ["closed"]]


def test_what_waits_for_a_connection_ends_with_its_client(client: Page) -> None:
    got = client.run(
        """
        const other = script.connect();
        const waiting = [other.publish("late", 1), other.subscribe("late", keep)];
        other.close();
        return (await Promise.allSettled(waiting)).map(({ reason }) => reason.code);
        """
    )
    assert got == ["CLOSED", "CLOSED"]
