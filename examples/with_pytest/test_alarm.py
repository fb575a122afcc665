"""Test of a program against a real server, which the fixture `penstock_server` starts in this process."""

import asyncio
from threading import Thread

from alarm import watch

from penstock.testing import RunningServer


def test_a_hot_oven_raises_an_alarm(penstock_server: RunningServer) -> None:
    Thread(target=lambda: asyncio.run(watch(penstock_server.grpc_address)), daemon=True).start()
    penstock_server.wait_for_messages("alarms/ready")
    with penstock_server.connect() as client:
        client.publish("ovens/1/celsius", "184.5")
        client.publish("ovens/2/celsius", "251.0")
    [alarm] = penstock_server.wait_for_messages("alarms/+", count=2)[1:]
    assert (alarm.topic, alarm.payload) == ("alarms/2", b'{"celsius": 251.0}')
    penstock_server.assert_nothing_dropped()
