"""Messages and subscribers of each topic, in the form that the In-memory Pub/Sub gives them."""

import httpx

from penstock.app import Server
from tests.doors.web.serving import mqtt_of


async def test_each_topic_has_its_messages_and_its_subscribers(
    server: Server, http: httpx.AsyncClient
) -> None:
    await http.post("/topics", json={"name": "quiet"})
    async with mqtt_of(server) as one, mqtt_of(server) as other:
        await one.subscribe("orders")
        await other.subscribe("#")
        for _ in range(3):
            await one.publish("orders", b"x", qos=1)
        answer = await http.get("/stats")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "topics": {
            "quiet": {"message_count": 0, "subscriber_count": 1},
            "orders": {"message_count": 3, "subscriber_count": 2},
        }
    }


async def test_without_topics_there_is_nothing_to_tell(http: httpx.AsyncClient) -> None:
    assert (await http.get("/stats")).json() == {"topics": {}}


async def test_a_topic_that_comes_back_is_counted_anew(http: httpx.AsyncClient) -> None:
    for count in (2, 1):
        for _ in range(count):
            await http.post("/api/v1/publish", json={"topic": "a", "data": 1})
        told = (await http.get("/stats")).json()["topics"]["a"]
        assert told == {"message_count": count, "subscriber_count": 0}
        await http.delete("/topics/a")
