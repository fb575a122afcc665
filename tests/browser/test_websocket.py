"""The browser's own WebSocket, without any library."""

from tests.browser.pages import Page
from tests.browser.places import publish
from tests.support.servers import RunningServer, StartServer

CONNECT = """
  window.box = new Box();
  window.socket = new WebSocket(`ws://${location.host}/ws`);
  socket.onmessage = ({ data }) => box.put(JSON.parse(data));
  window.say = (message) => socket.send(JSON.stringify(message));
  return (await box.take(1))[0];
"""


def test_a_page_makes_a_topic_and_gets_its_own_message(page: Page, web_server: RunningServer) -> None:
    greeting = page.open(web_server).run(CONNECT)
    assert greeting["type"] == "info" and greeting["message"].startswith("Connected with client_id: ")
    made = page.run(
        """
        const headers = { "Content-Type": "application/json" };
        const made = await fetch("/topics", { method: "POST", headers, body: '{"name": "raw"}' });
        return [made.status, await made.json()];
        """
    )
    assert made == [201, {"name": "raw", "created": True}]
    subscribed, *rest = page.run(
        """
        say({ type: "subscribe", topic: "raw" });
        say({ type: "publish", topic: "raw", data: { on: [1, "ä"] } });
        return await box.take(3);
        """
    )
    assert subscribed["message"] == "Subscribed to topic 'raw'"
    by_type = {each["type"]: each for each in rest}
    assert by_type["ack"]["message"] == "Published to 1 subscriber(s)"
    assert (by_type["event"]["topic"], by_type["event"]["data"]) == ("raw", {"on": [1, "ä"]})


def test_a_binary_frame_is_refused_and_the_connection_kept(page: Page, web_server: RunningServer) -> None:
    page.open(web_server).run(CONNECT)
    answers = page.run('socket.send(new Uint8Array([1])); say({ type: "ping" }); return await box.take(2);')
    assert [each["type"] for each in answers] == ["error", "pong"]


def test_a_page_gets_compressed_events_where_the_server_compresses(
    page: Page, start_server: StartServer
) -> None:
    server = start_server({"http": {"port": 0}, "web": {"deflate": True}})
    page.open(server).run(CONNECT)
    assert page.run("return socket.extensions;").startswith("permessage-deflate")
    page.run('say({ type: "subscribe", filter: "long/#" }); await box.take(1);')
    publish(server, "long/text", "x" * 20_000, "y" * 20_000)
    events = page.run("return await box.take(2);")
    assert [each["data"] for each in events] == ["x" * 20_000, "y" * 20_000]


def test_a_page_from_elsewhere_is_not_let_in(
    page: Page, web_server: RunningServer, start_server: StartServer
) -> None:
    elsewhere = start_server({"http": {"port": 0}})
    page.open(elsewhere)
    closed = page.run(
        """
        const socket = new WebSocket(`ws://127.0.0.1:${given[0]}/ws`);
        return await new Promise((resolve) => {
          socket.onopen = () => resolve("open");
          socket.onclose = () => resolve("closed");
        });
        """,
        web_server.port_of("http"),
    )
    assert closed == "closed"
