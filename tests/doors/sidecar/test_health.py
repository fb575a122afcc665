"""The health of the server, asked for once or watched."""

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1.health_pb2_grpc import HealthStub

from penstock.doors.sidecar.door import Services
from penstock.doors.sidecar.health import Health
from penstock.doors.sidecar.transport.method import EndCause
from penstock.wire.grpc import Status
from tests.doors.sidecar.fake_call import FakeCall
from tests.doors.sidecar.opened import opened
from tests.support.waiting import until

SERVICES = ("nexusd.sidecar.SidecarService", "penstock.v1.Penstock")
CHECK, LIST, WATCH = (f"/grpc.health.v1.Health/{name}" for name in ("Check", "List", "Watch"))
TIMEOUT_S = 30.0
GARBAGE = b"\xff\xff"


def asking(service: str) -> bytes:
    request: bytes = pb.HealthCheckRequest(service=service).SerializeToString()
    return request


def statuses(call: FakeCall) -> list[str]:
    """What somebody was told, by gRPC's own classes."""
    answers = map(pb.HealthCheckResponse.FromString, call.sent)
    return [pb.HealthCheckResponse.ServingStatus.Name(answer.status) for answer in answers]


@pytest.mark.parametrize("service", ["", *SERVICES, "grpc.health.v1.Health"])
def test_a_service_serves_until_the_server_begins_to_stop(service: str) -> None:
    health = Health(SERVICES)
    before = FakeCall().begin(health.methods[CHECK], asking(service))
    health.drain()
    after = FakeCall().begin(health.methods[CHECK], asking(service))
    assert (statuses(before), before.status) == (["SERVING"], Status.OK)
    assert (statuses(after), after.status) == (["NOT_SERVING"], Status.OK)


def test_a_service_that_is_not_there_is_not_found() -> None:
    call = FakeCall().begin(Health(SERVICES).methods[CHECK], asking("penstock.v2.Penstock"))
    assert (call.sent, call.status) == ([], Status.NOT_FOUND)


def test_all_services_are_listed() -> None:
    call = FakeCall().begin(Health(SERVICES).methods[LIST], b"")
    listed = pb.HealthListResponse.FromString(call.sent[0]).statuses
    assert set(listed) == {"", "grpc.health.v1.Health", *SERVICES}
    assert {answer.status for answer in listed.values()} == {pb.HealthCheckResponse.SERVING}


@pytest.mark.parametrize("path", [CHECK, LIST, WATCH])
def test_bytes_that_are_no_request_are_refused(path: str) -> None:
    call = FakeCall().begin(Health(SERVICES).methods[path], GARBAGE)
    assert (call.sent, call.status) == ([], Status.INVALID_ARGUMENT)
    assert call.text.startswith("invalid-request: ")


def test_who_watches_is_told_now_and_when_it_changes() -> None:
    health = Health(SERVICES)
    call = FakeCall().begin(health.methods[WATCH], asking(SERVICES[0]))
    assert statuses(call) == ["SERVING"]
    health.drain()
    assert statuses(call) == ["SERVING", "NOT_SERVING"]
    assert not call.is_over


def test_who_watches_an_unknown_service_is_told_so_and_stays() -> None:
    call = FakeCall().begin(Health(SERVICES).methods[WATCH], asking("unknown"))
    assert (statuses(call), call.is_over) == (["SERVICE_UNKNOWN"], False)


def test_the_end_of_the_server_ends_the_calls_of_those_who_watch() -> None:
    health = Health(SERVICES)
    call = FakeCall().begin(health.methods[WATCH], asking(""))
    health.close()
    assert call.status is Status.UNAVAILABLE


def test_who_has_gone_is_told_nothing_more() -> None:
    health = Health(SERVICES)
    call = FakeCall().begin(health.methods[WATCH], asking(""))
    assert call.handler is not None
    call.handler.ended(EndCause.LOST)
    health.drain()
    health.close()
    assert (statuses(call), call.status) == (["SERVING"], None)


def test_a_call_watches_one_service() -> None:
    health = Health(SERVICES)
    none = FakeCall().begin(health.methods[WATCH])
    two = FakeCall().begin(health.methods[WATCH], asking(""), asking(""))
    assert (none.status, two.status) == (Status.INVALID_ARGUMENT, Status.INVALID_ARGUMENT)
    health.drain()
    assert statuses(two) == ["SERVING"]


async def test_grpcs_own_client_checks_and_lists() -> None:
    health = Health(SERVICES)
    offer = Services(health.methods, health.drain, health.close)
    async with opened(offer) as address, grpc.aio.insecure_channel(address) as channel:
        stub = HealthStub(channel)
        answer = await stub.Check(pb.HealthCheckRequest(service=SERVICES[1]), timeout=TIMEOUT_S)
        assert answer.status == pb.HealthCheckResponse.SERVING
        listed = await stub.List(pb.HealthListRequest(), timeout=TIMEOUT_S)
        assert SERVICES[0] in listed.statuses
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Check(pb.HealthCheckRequest(service="unknown"), timeout=TIMEOUT_S)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND


async def test_grpcs_own_client_watches_until_the_server_ends() -> None:
    health = Health(SERVICES)
    offer = Services(health.methods, health.drain, health.close)
    async with opened(offer) as address, grpc.aio.insecure_channel(address) as channel:
        watch = HealthStub(channel).Watch(pb.HealthCheckRequest(), timeout=TIMEOUT_S)
        assert (await watch.read()).status == pb.HealthCheckResponse.SERVING
        health.drain()
        assert (await watch.read()).status == pb.HealthCheckResponse.NOT_SERVING
        health.close()
        assert await watch.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_client_that_cancels_is_forgotten() -> None:
    health = Health(SERVICES)
    offer = Services(health.methods, health.drain, health.close)
    async with opened(offer) as address, grpc.aio.insecure_channel(address) as channel:
        watch = HealthStub(channel).Watch(pb.HealthCheckRequest(), timeout=TIMEOUT_S)
        await watch.read()
        assert health.watching == 1
        watch.cancel()
        await until(lambda: not health.watching, "a watcher is still there", timeout_s=TIMEOUT_S)
