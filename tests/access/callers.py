"""Those who make attempts by gRPC alone, and how they come to a scene."""

from itertools import cycle

from penstock.wire.grpc import Status
from tests.access.calls import SIDECAR, CallEntrance, OwnVisitor, SidecarVisitor, authorization_of
from tests.access.channels import Channel, Metadata
from tests.access.scene import Scene, credentials_of

OWNER, MALLORY, CAROL = (credentials_of(user) for user in ("owner", "mallory", "carol"))


async def open_channel(scene: Scene) -> Channel:
    assert isinstance(scene.entrance, CallEntrance)
    return await scene.entrance.open(scene.guarded.server)


async def enter(scene: Scene, user: str) -> SidecarVisitor:
    visitor = await scene.enter(credentials_of(user))
    assert isinstance(visitor, SidecarVisitor)
    return visitor


async def enter_own(scene: Scene, user: str) -> OwnVisitor:
    """A visitor of our own service, whom the watchman does not watch."""
    return OwnVisitor(
        await open_channel(scene), authorization_of(credentials_of(user)), "", cycle(("secret",))
    )


async def ask_for_peers(channel: Channel, metadata: Metadata) -> Status:
    status, _ = await channel.ask(f"{SIDECAR}GetPeers", metadata, b"")
    return status
