"""A server that takes passwords and certificates, and whose rights change, for attempts by gRPC."""

from collections.abc import AsyncIterator
from functools import cache
from itertools import cycle
from typing import Any

import pytest

from tests.access.calls import CallEntrance, SidecarVisitor
from tests.access.scene import RIGHTS, Files, Guarded, Scene
from tests.support.certificates import Authority
from tests.support.servers import StartServer


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def guard(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Any:
    """Servers, with guests and without, that take certificates for names."""
    folder = tmp_path_factory.mktemp("certificates")
    certificate = authority.issue(folder, "server").both
    clients = {"ca_file": authority.write(folder / "authority")}

    @cache
    def guard(has_guests: bool) -> Guarded:
        files = Files(tmp_path_factory.mktemp("access"))
        settings = dict(files.settings(certificate, allow_anonymous=has_guests))
        settings["tls"] |= {**clients, "client_certificates": "optional", "name_as_user": True}
        settings["connections"] = {"failures_per_address": 0}
        return Guarded(start_server(settings), files)

    return guard


@pytest.fixture(params=[False])
async def scene(guard: Any, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    """A server whose rights are as they were at first; with `True`, one where guests may come."""
    here = guard(request.param)
    here.rights = dict(RIGHTS)
    await here.reload()
    scene = Scene(here, CallEntrance(SidecarVisitor, cycle(("secret",))))
    await scene.open()
    yield scene
    await scene.close()
