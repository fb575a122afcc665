"""Prints messages, and what is missing, across interruptions: python subscriber.py ADDRESS COUNT."""

import json
import sys

from nexusd_client import GapRecoveryMode, NexusdClient, ReconnectionPolicy, ReconnectionState


def on_gap(expected: int, actual: int, topic: str) -> None:
    print(f"gap {topic}: expected {expected}, got {actual}", flush=True)


def on_state_change(state: ReconnectionState, error: BaseException | None) -> None:
    print(f"state {state.name}", flush=True)


def main(address: str, count: int) -> None:
    policy = ReconnectionPolicy(max_retries=100, initial_delay_ms=50, max_delay_ms=500)
    client = NexusdClient(
        address, reconnection_policy=policy, gap_recovery_mode=GapRecoveryMode.REPLAY_BUFFER
    )
    client.on_connection_state_change(on_state_change)
    client.on_gap_detected(on_gap)
    for message in client.subscribe(["sensors/temperature", "config/settings"], receive_retained=True):
        flags = " retained" * message.is_retained + " replay" * message.is_replay
        print(f"[{message.sequence_number}] {message.topic} {json.loads(message.payload)}{flags}", flush=True)
        count -= 1
        if not count:
            break
    client.close()


main(sys.argv[1], int(sys.argv[2]))
