"""penstock.js across breaks: servers that crash, begin anew, or say nothing any more."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.clients import CONNECT
from tests.browser.pages import Page
from tests.browser.places import Place, publish

FREE = {"web": {"explicit_topics": False}}


@pytest.fixture
def place(place_of: Callable[..., Place], tmp_path: Path) -> Place:
    """Servers with a data directory."""
    return place_of({**FREE, "data_dir": str(tmp_path / "data")})


def test_every_subscription_goes_on_where_it_was_after_a_crash(page: Page, place: Place) -> None:
    page.open(place.server).run(CONNECT)
    page.run('await client.subscribe("a/#", keep); await client.subscribe("b", ({ data }) => box.put(data));')
    publish(place.server, "a/1", 1, 2)
    assert page.run("return await box.take(2);") == [["a/1", 1], ["a/1", 2]]
    place.kill()
    page.run('await states.until("waiting");')
    elsewhere = place.start(port=0)  # the page cannot hear what is published there
    publish(elsewhere, "a/1", 3)
    publish(elsewhere, "b", 4)  # nothing of which it ever got, but it was there before
    elsewhere.stop()
    place.start()
    page.run('await states.until("open");')
    publish(place.server, "a/2", 5)
    got = page.run("return [await box.take(3), box.items, gaps.items];")
    assert sorted(got[0], key=str) == sorted([["a/1", 3], ["a/2", 5], 4], key=str)
    assert got[0].index(["a/1", 3]) < got[0].index(["a/2", 5])
    assert got[1:] == [[], []]


def test_a_replay_after_a_crash_is_nothing_new_to_who_had_it_before(page: Page, place: Place) -> None:
    first, *_ = publish(place.server, "had/a", 1, 2, 3)
    page.open(place.server).run(CONNECT)
    page.run('await client.subscribe("had/#", keep, { lastN: 3 }); await box.take(3);')
    place.kill()
    page.run('await states.until("waiting");')
    place.start()
    got = page.run(
        """
        const again = new Box();
        await client.subscribe("had/a", ({ data }) => again.put(data), { after: given[0] });
        const replayed = await again.take(2);
        await client.publish("had/a", 4);
        return [replayed, await box.take(1), box.items];
        """,
        first,
    )
    assert got == [[2, 3], [["had/a", 4]], []]


def test_a_later_visit_goes_on_with_the_cursor_that_the_page_kept(page: Page, place: Place) -> None:
    page.open(place.server).run(CONNECT)
    page.run('window.mine = await client.subscribe("visits", keep);')
    publish(place.server, "visits", 1)
    page.run('await box.take(1); localStorage.setItem("cursor", mine.cursor); client.close();')
    publish(place.server, "visits", 2, 3)
    page.open(place.server).run(CONNECT)
    page.run('await client.subscribe("visits", keep, { after: localStorage.getItem("cursor") });')
    assert page.run("return await box.take(2);") == [["visits", 2], ["visits", 3]]


@pytest.mark.parametrize("kept", ["AXxY3092vvp5AAAAAQAAAAAAABOZ", "undefined"])
def test_a_visit_with_a_cursor_that_nobody_knows_is_a_gap_and_goes_on(
    page: Page, place_of: Callable[..., Place], kept: str
) -> None:
    place = place_of(FREE)
    publish(place.server, "visits", 1)
    page.open(place.server).run(CONNECT)
    page.run('window.mine = await client.subscribe("visits", keep, { after: given[0] });', kept)
    [gap] = page.run("return await gaps.take(1);")
    assert (gap["filter"], gap["statement"]["reason"]) == ("visits", "epoch-changed")
    [cursor] = publish(place.server, "visits", 2)
    assert page.run("return await box.take(2);") == [["visits", 1], ["visits", 2]]
    assert page.run("return mine.cursor;") == cursor


@pytest.fixture
def first(place: Place) -> str:
    """The cursor of the first of 2000 messages, which are more than is read at once."""
    return publish(place.server, "both/a", *(f"{number:04}{'.' * 1000}" for number in range(2000)))[0]


def test_two_long_replays_that_overlap_are_not_mixed_up(page: Page, place: Place, first: str) -> None:
    page.open(place.server).run(CONNECT)
    got = page.run(
        """
        const [wide, narrow] = [new Box(), new Box()];
        const number = (box) => ({ data }) => box.put(Number(data.slice(0, 4)));
        await Promise.all([
          client.subscribe("both/#", number(wide), { after: given[0] }),
          client.subscribe("both/a", number(narrow), { after: given[0] }),
        ]);
        return [await wide.take(1999), await narrow.take(1999), wide.items, narrow.items];
        """,
        first,
    )
    assert got == [list(range(1, 2000)), list(range(1, 2000)), [], []]


def test_what_is_left_of_a_replay_is_for_nobody_else(page: Page, place: Place, first: str) -> None:
    page.open(place.server).run(CONNECT)
    got = page.run(
        """
        await client.subscribe("both/a", keep);
        const left = new Box();
        await client.subscribe("both/#", () => left.put(client.unsubscribe("both/#")), { after: given[0] });
        await (await left.take(1))[0];
        await client.publish("both/a", "new");
        return [await box.take(1), box.items];
        """,
        first,
    )
    assert got == [[["both/a", "new"]], []]


def test_a_replay_that_brings_nothing_gets_on_all_the_same(page: Page, place: Place) -> None:
    first, last = publish(place.server, "elsewhere", 1, 2)
    page.open(place.server).run(CONNECT)
    cursor = page.run(
        """
        const subscription = await client.subscribe("nothing/a", keep, { after: given[0] });
        await client.subscribe("nothing/#", keep); // which waits for the other, because it overlaps
        return subscription.cursor;
        """,
        first,
    )
    assert cursor == last


def test_a_server_that_has_begun_anew_is_a_gap_and_what_it_has_is_new(
    page: Page, place_of: Callable[..., Place]
) -> None:
    place = place_of(FREE)  # which keeps everything in memory
    page.open(place.server).run(CONNECT, {"retryMs": 1000, "maxRetryMs": 1000})
    page.run('await client.subscribe("anew", keep);')
    publish(place.server, "anew", 1)
    assert page.run("return await box.take(1);") == [["anew", 1]]
    place.kill()
    place.start()
    publish(place.server, "anew", 2)  # most likely before the page is back
    [gap] = page.run("return await gaps.take(1);")
    assert (
        gap["filter"] == "anew"
        and gap["statement"]["reason"] == "epoch-changed"
        and not gap["statement"]["is_complete"]
    )
    publish(place.server, "anew", 3)
    assert page.run("return await box.take(2);") == [["anew", 2], ["anew", 3]]


def test_publications_wait_for_the_next_connection(page: Page, place: Place) -> None:
    page.open(place.server).run(CONNECT, {"maxWaiting": 2})
    page.run('await client.subscribe("waits", keep); await client.publish("waits", 0);')
    place.kill()
    page.run('await states.until("waiting");')
    codes = page.run(
        """
        window.sent = [1, 2].map((each) => client.publish("waits", each));
        return await client.publish("waits", 3).catch(({ code }) => code);
        """
    )
    assert codes == "NOT_CONNECTED"
    place.start()
    page.run("await Promise.all(sent);")
    assert page.run("return await box.take(3);") == [["waits", each] for each in range(3)]


def test_a_publication_without_an_answer_says_that_it_has_none(page: Page, place: Place) -> None:
    page.open(place.server).run(CONNECT)
    page.run('await client.publish("first", 1);')
    place.server.process.send_signal(signal.SIGSTOP)
    page.run('window.code = client.publish("lost", 1).catch(({ code }) => code);')
    place.kill()
    assert page.run("return await code;") == "CONNECTION_LOST"


def test_a_server_that_says_nothing_is_left_and_found_again(page: Page, place: Place) -> None:
    page.open(place.server).run(CONNECT, {"silenceMs": 500})
    page.run('await client.subscribe("silent", keep); states.items.length = 0;')
    place.server.process.send_signal(signal.SIGSTOP)
    try:
        page.run('await states.until("waiting");')
    finally:
        place.server.process.send_signal(signal.SIGCONT)
    publish(place.server, "silent", 1)
    assert page.run("return [await box.take(1), gaps.items];") == [[["silent", 1]], []]


def test_a_server_that_answers_is_not_left(page: Page, place: Place) -> None:
    page.open(place.server).run(
        """
        window.pongs = new Box();
        window.WebSocket = class extends WebSocket {
          constructor(address) {
            super(address);
            this.addEventListener("message", ({ data }) => { if (data.includes('"pong"')) pongs.put(data); });
          }
        };
        """
    )
    page.run(CONNECT, {"silenceMs": 1000})
    page.run('await client.publish("there", 1); states.items.length = 0;')
    page.run("await pongs.take(2);")
    assert page.run("return [client.state, states.items];") == ["open", []]
