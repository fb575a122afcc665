"""Stories of the pages: a user sees figures, publishes, looks, deletes, disconnects and asks why."""

import json

import httpx
from selenium.webdriver import Keys
from websockets.sync.client import connect

from penstock.client import HttpClient
from tests.console.screen import Screen
from tests.console.undelivered import publish_undelivered
from tests.support.servers import RunningServer


def publish(http: httpx.Client, *messages: dict[str, object]) -> None:
    http.post("/api/v1/publish", json=list(messages)).raise_for_status()


def test_the_root_of_the_server_shows_health_figures_and_the_last_hour(
    screen: Screen, console_server: RunningServer, http: httpx.Client
) -> None:
    publish(http, {"topic": "overview/a", "data": 1})
    screen.open(console_server)
    assert screen.texts("h1") == ["Overview"]
    screen.wait(lambda: "Healthy" in screen.text(".reasons"), "no health")
    screen.wait(lambda: screen.card("Messages in").endswith("/s"), "no rate")
    assert int(screen.card("Topics").replace(",", "")) >= 1
    assert int(screen.card("Connections")) >= 1
    assert screen.card("Memory").endswith("iB")
    assert "to offset" in screen.text(".cards")
    screen.wait(lambda: screen.rows("Busiest topics"), "no busiest topics")
    assert screen.texts("figcaption")[0] == "Messages in per second"
    screen.wait(
        lambda: screen.run("return document.querySelectorAll('.line').length") > 0, "no chart is drawn"
    )
    assert screen.texts(".node") == ["plant-north"]


def test_a_message_is_published_and_seen_with_its_receipt_value_and_plot(
    screen: Screen, console_server: RunningServer
) -> None:
    screen.open(console_server, "publish?topic=stove/heat")
    screen.fill("Payload", '{"celsius": 21.5, "id": 12345678901234567890}')
    screen.find("input", "Retain").click()
    screen.click("Publish")
    screen.wait(lambda: "stored in the log" in screen.text(".receipts"), "no receipt")
    screen.fill("Payload", '{"celsius": 23}').send_keys(Keys.CONTROL, Keys.ENTER)
    screen.wait(lambda: len(screen.texts(".receipts > li")) == 2, "no second receipt")
    screen.go("topics/stove/heat")
    rows = screen.wait(lambda: screen.rows("Messages of stove/heat"), "no messages")
    assert [row[2] for row in rows] == ['{"celsius":23}', '{"celsius":21.5,"id":12345678901234567890}']
    value = "section[aria-label='Retained value'] pre"
    screen.wait(lambda: '"celsius": 23' in screen.text(value), "no retained value")
    screen.wait(
        lambda: screen.run("return document.querySelector('.line')?.getAttribute('d').length") > 0, "no plot"
    )


def test_a_payload_that_is_not_json_is_refused_before_it_is_sent(
    screen: Screen, console_server: RunningServer
) -> None:
    screen.open(console_server, "publish?topic=stove/off")
    screen.fill("Payload", "{not json")
    screen.click("Publish")
    assert "Not valid JSON" in screen.run("return document.querySelector('textarea').validationMessage")
    screen.choose("Payload is", "text")
    screen.click("Publish")
    screen.wait(lambda: screen.texts(".receipts > li"), "no receipt")
    screen.go("topics/stove/off")
    screen.wait(lambda: "{not json" in screen.text(".page-topics table"), "the text is not shown")


def test_a_retained_value_is_looked_at_and_deleted_after_a_question(
    screen: Screen, console_server: RunningServer, http: httpx.Client
) -> None:
    publish(
        http,
        {"topic": "lamp/hall", "data": "on", "retain": True},
        {"topic": "lamp/roof", "data": {"on": 1}, "retain": True},
    )
    screen.open(console_server, "retained?filter=lamp/%23")
    screen.wait(lambda: len(screen.rows("Retained values")) == 2, "not both values")
    screen.click("Show lamp/roof")
    screen.wait(lambda: '"on": 1' in screen.text("pre"), "the value is not shown")
    screen.click("Delete lamp/hall")
    screen.click("Cancel")
    assert http.get("/api/v1/retained/lamp/hall").status_code == 200
    screen.click("Delete lamp/hall")
    screen.click("Delete")
    screen.wait(
        lambda: [row[0] for row in screen.rows("Retained values")] == ["lamp/roof"], "it is still listed"
    )
    assert http.get("/api/v1/retained/lamp/hall").status_code == 404


def test_a_client_is_found_and_disconnected_after_a_question(
    screen: Screen, console_server: RunningServer
) -> None:
    with connect(f"ws://127.0.0.1:{console_server.port_of('http')}/ws", proxy=None) as socket:
        client_id = json.loads(socket.recv())["message"].rpartition(" ")[2]
        socket.send(json.dumps({"type": "subscribe", "filter": "kitchen/+"}))
        socket.recv()
        screen.open(console_server, "clients")
        screen.fill("Search clients", client_id[:13])
        screen.wait(lambda: [row[0] for row in screen.rows("Clients")] == [client_id], "not found")
        screen.click(client_id)
        screen.wait(lambda: [row[0] for row in screen.rows("Subscriptions")] == ["kitchen/+"], "no detail")
        screen.click("Disconnect")
        screen.click("Disconnect")
        screen.wait(lambda: "There is no session of this client" in screen.text(), "it is still there")
        assert f"{client_id} was disconnected." in screen.text("#notices")
    assert [each for each in screen.errors() if "404" not in each] == []


def test_why_gives_the_sentence_first_and_lists_what_was_not_delivered(
    screen: Screen, console_server: RunningServer
) -> None:
    with HttpClient(f"http://127.0.0.1:{console_server.port_of('http')}") as client:
        publish_undelivered(console_server.port, client)
    screen.open(console_server, "why")
    screen.fill("Topic", "dock/in")
    screen.fill("Sequence", "3")
    screen.fill("Client (optional)", "away")
    screen.click("Ask why")
    said = screen.wait(lambda: screen.texts(".sentence"), "no answer")
    assert said[0].startswith("not-delivered")
    records = screen.wait(lambda: screen.rows("Not delivered recently"), "no records")
    assert {"dock/in", "dock/out"} <= {record[0] for record in records}
    assert screen.rows("Not delivered to")[0][0] == "away"


def test_log_settings_and_slow_consumers_are_shown(screen: Screen, console_server: RunningServer) -> None:
    screen.open(console_server, "log")
    screen.wait(lambda: screen.card("State") == "Durable" and "Data directory" in screen.text(), "no log")
    assert int(screen.card("Newest offset").replace(",", "")) > 0
    assert not screen.card("Messages")  # there are fewer than offsets: the server's own messages take some
    screen.go("settings")
    everything = screen.wait(lambda: screen.rows("Settings in effect"), "no settings")
    screen.fill("Search settings", "node_id")
    screen.wait(lambda: len(screen.rows("Settings in effect")) < len(everything), "not fewer settings")
    name, value, origin = screen.rows("Settings in effect")[0]
    assert (name, value) == ("node_id", "plant-north")
    assert "penstock.yaml" in origin
    screen.go("slow")
    screen.wait(lambda: "slow now" in screen.text(), "no slow consumers")


def test_an_unreachable_server_is_told_with_its_time_and_noticed_when_it_is_back(
    screen: Screen, console_server: RunningServer
) -> None:
    screen.open(console_server)
    screen.wait(lambda: "Healthy" in screen.text(".state"), "no state")
    offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    screen.browser.execute_cdp_cmd("Network.enable", {})
    screen.browser.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    screen.wait(lambda: "cannot be reached. Since " in screen.text(".banner"), "no banner")
    online = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    screen.browser.execute_cdp_cmd("Network.emulateNetworkConditions", online)
    screen.click("Retry now")
    screen.wait(
        lambda: not screen.texts(".banner") and "Healthy" in screen.text(".state"), "the banner stays"
    )
    assert [each for each in screen.errors() if "ERR_INTERNET_DISCONNECTED" not in each] == []
