"""Publishes a few readings and a retained value: python publisher.py ADDRESS COUNT."""

import json
import sys

from nexusd_client import NexusdClient


def main(address: str, count: int) -> None:
    with NexusdClient(address) as client:
        client.publish(
            topic="config/settings",
            payload=json.dumps({"theme": "dark"}).encode(),
            content_type="application/json",
            retain=True,
        )
        for number in range(1, count + 1):
            result = client.publish(
                topic="sensors/temperature",
                payload=json.dumps({"value": number}).encode(),
                content_type="application/json",
                ttl_ms=60000,
            )
            print(result.success, result.subscriber_count, bool(result.message_id), flush=True)


main(sys.argv[1], int(sys.argv[2]))
