"""What can go wrong, under the names that NexusD's client has."""

import grpc

from penstock.compat.nexusd_client.policy import RETRIED


class NexusdError(Exception):
    """Anything that the daemon, or the way to it, did not allow."""

    def __init__(self, text: str, code: grpc.StatusCode | None = None) -> None:
        super().__init__(text)
        self.code = code
        """The status of the call, if there was one."""


class ConnectionError(NexusdError):  # the name that programs import
    """There is no connection: the client was closed, or the daemon cannot be reached."""


class PublishError(NexusdError):
    """A message was not published."""


class SubscribeError(NexusdError):
    """A subscription was refused, or the daemon has ended it."""


class UnsubscribeError(NexusdError):
    """A subscription could not be ended or paused."""


def error_of(error: grpc.RpcError, kind: type[NexusdError] | None, doing: str) -> NexusdError:
    """What to raise for a call that failed; without a kind of its own it is told by its status."""
    code = error.code()
    if kind is None:
        kind = ConnectionError if code in RETRIED else NexusdError
    return kind(f"{doing}: {code.name}: {error.details()}", code)
