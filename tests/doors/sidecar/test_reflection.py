"""What can be called, asked for by tools."""

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1.health_pb2 import HealthListResponse
from grpc_reflection.v1alpha import reflection_pb2 as pb
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from penstock.core.access.access import OpenAccess
from penstock.core.broker import Broker
from penstock.core.runtime.clock import SystemClock
from penstock.core.settings import CoreSettings
from penstock.doors.sidecar.door import Services, load_services
from penstock.doors.sidecar.reflection import reflection_methods
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.storage.memory import MemoryLog, MemoryStateStore
from penstock.wire.grpc import Status
from tests.doors.sidecar.fake_call import FakeCall
from tests.doors.sidecar.opened import opened

SERVICES = ("nexusd.sidecar.SidecarService", "penstock.v1.Penstock", "grpc.health.v1.Health")
OWN = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
METHODS = reflection_methods(SERVICES)
METHOD = METHODS["/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"]


def ask(*questions: dict[str, Any]) -> list[pb.ServerReflectionResponse]:
    """Questions of one call, and the answers as gRPC's own classes read them."""
    messages = [pb.ServerReflectionRequest(**question).SerializeToString() for question in questions]
    call = FakeCall().begin(METHOD, *messages)
    assert call.status is Status.OK
    return list(map(pb.ServerReflectionResponse.FromString, call.sent))


def files_in(answer: pb.ServerReflectionResponse) -> list[FileDescriptorProto]:
    return list(map(FileDescriptorProto.FromString, answer.file_descriptor_response.file_descriptor_proto))


def test_both_versions_are_there() -> None:
    assert set(METHODS) == {f"/{name}/ServerReflectionInfo" for name in OWN}


def test_all_services_are_listed() -> None:
    (answer,) = ask({"list_services": ""})
    assert [each.name for each in answer.list_services_response.service] == sorted((*SERVICES, *OWN))


@pytest.mark.parametrize("service", [*SERVICES, *OWN])
def test_every_service_is_described(service: str) -> None:
    (answer,) = ask({"file_containing_symbol": service})
    (file,) = files_in(answer)
    assert [f"{file.package}.{each.name}" for each in file.service] == [service]


@pytest.mark.parametrize(
    "symbol",
    [
        "nexusd.sidecar.SidecarService.Publish",
        "nexusd.sidecar.MessageEvent",
        "nexusd.sidecar.GapRecoveryMode",
        "nexusd.sidecar.ResumeSubscribeRequest.LastSequencePerTopicEntry",
    ],
)
def test_a_symbol_leads_to_its_file_and_the_file_can_be_asked_for(symbol: str) -> None:
    (answer,) = ask({"file_containing_symbol": symbol})
    (file,) = files_in(answer)
    assert file.package == "nexusd.sidecar"
    (again,) = ask({"file_by_filename": file.name})
    assert files_in(again) == [file]


@pytest.mark.parametrize(
    "question",
    [
        {"file_containing_symbol": "nexusd.sidecar.Nothing"},
        {"file_containing_symbol": "nexusd.sidecar.SidecarService.Nothing"},
        {"file_containing_symbol": ""},
        {"file_by_filename": "nothing.proto"},
        {"file_by_filename": "../../../etc/passwd"},
    ],
)
def test_what_is_not_there_is_not_found_and_the_call_goes_on(question: dict[str, Any]) -> None:
    missing, listed = ask(question, {"list_services": ""})
    assert missing.error_response.error_code == Status.NOT_FOUND
    assert listed.HasField("list_services_response")


def test_there_are_no_extensions() -> None:
    extension = pb.ExtensionRequest(containing_type="nexusd.sidecar.Message", extension_number=100)
    answers = ask({"file_containing_extension": extension}, {"all_extension_numbers_of_type": "a.B"})
    assert [answer.error_response.error_code for answer in answers] == [Status.UNIMPLEMENTED] * 2


def test_a_question_that_asks_nothing_is_told_so() -> None:
    (answer,) = ask({"host": "here"})
    assert answer.error_response.error_code == Status.INVALID_ARGUMENT


def test_each_answer_has_its_question() -> None:
    answers = ask({"host": "here", "list_services": "all"}, {"file_by_filename": "x"})
    assert answers[0].original_request == pb.ServerReflectionRequest(host="here", list_services="all")
    assert answers[0].valid_host == "here"
    assert answers[1].original_request == pb.ServerReflectionRequest(file_by_filename="x")


def test_bytes_that_are_no_question_end_the_call() -> None:
    call = FakeCall().begin(METHOD, b"\xff\xff")
    assert (call.sent, call.status) == ([], Status.INVALID_ARGUMENT)


def test_who_reads_no_answers_is_asked_no_questions() -> None:
    call = FakeCall()
    call.begin(METHODS["/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"])
    assert call.handler is not None and call.is_reading
    call.handler.pause_writing()
    assert not call.is_reading
    call.handler.resume_writing()
    assert call.is_reading


def look_around(address: str) -> tuple[list[str], ServiceDescriptor, list[str]]:
    """What grpc's own client finds: all services, one of them, and the fields of a message of it."""
    with grpc.insecure_channel(address) as channel:
        found = ProtoReflectionDescriptorDatabase(channel)
        pool = DescriptorPool(found)
        service = pool.FindServiceByName(SERVICES[0])
        message = pool.FindMessageTypeByName("nexusd.sidecar.PublishRequest")
        return sorted(found.get_services()), service, [field.name for field in message.fields]


async def test_grpcs_own_client_finds_everything() -> None:
    async with opened(Services(METHODS, lambda: None, lambda: None)) as address:
        services, service, fields = await asyncio.to_thread(look_around, address)
    assert services == sorted((*SERVICES, *OWN))
    assert "ResumeSubscribe" in service.methods_by_name
    assert fields == ["topic", "payload", "content_type", "retain", "correlation_id", "ttl_ms"]


async def test_what_a_door_offers_is_what_it_describes_and_calls_healthy() -> None:
    clock = SystemClock()
    loop = asyncio.get_running_loop()
    broker = Broker(CoreSettings(), OpenAccess(), MemoryLog(0), MemoryStateStore(), clock, loop)
    offer = load_services(SidecarSettings(), broker, clock)
    served = {path[1:].rpartition("/")[0] for path in offer.methods}
    assert served == {*SERVICES, *OWN}
    call = FakeCall().begin(offer.methods["/grpc.health.v1.Health/List"], b"")
    assert set(HealthListResponse.FromString(call.sent[0]).statuses) == {"", *served}
    call = FakeCall().begin(
        offer.methods["/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"],
        pb.ServerReflectionRequest(list_services="").SerializeToString(),
    )
    listed = pb.ServerReflectionResponse.FromString(call.sent[0]).list_services_response.service
    assert {each.name for each in listed} == served
