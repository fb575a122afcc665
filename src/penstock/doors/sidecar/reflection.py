"""`grpc.reflection`, versions 1 and 1alpha: service descriptions for tools without `.proto` files.

Both versions have the same bytes under different names. There are no extensions. No credentials are needed.
"""

from collections.abc import Callable, Iterable

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message import DecodeError

from penstock.doors.sidecar.transport.method import Call, Handler, Methods, Streaming
from penstock.doors.sidecar.transport.status import refuse, undecodable
from penstock.wire.grpc import Status, encode_message
from penstock.wire.sidecar.messages import health, nexusd, penstock, reflection_v1alpha
from penstock.wire.sidecar.messages.reflection import (
    ErrorResponse,
    FileDescriptorResponse,
    ListServiceResponse,
    ServerReflectionRequest,
    ServerReflectionResponse,
    ServiceResponse,
)
from penstock.wire.sidecar.schema import POOL

NAMES = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
DESCRIBED = (nexusd, penstock, health, reflection_v1alpha)
"""Modules whose import adds their messages to the pool."""


def reflection_methods(services: Iterable[str]) -> Methods:
    """The methods that describe services, those of reflection itself included.

    Args:
        services: the full names of all others.
    """
    names = sorted({*services, *NAMES})
    method = Streaming(lambda call: _Reflection(call, names))
    return {f"/{name}/ServerReflectionInfo": method for name in NAMES}


class _Reflection(Handler):
    """Responds to each request of one call, in order."""

    __slots__ = ("_call", "_services")

    def __init__(self, call: Call, services: list[str]) -> None:
        self._call = call
        self._services = services

    def message_received(self, message: bytes) -> None:
        try:
            request = ServerReflectionRequest.FromString(message)
        except DecodeError:
            refuse(self._call, undecodable("ServerReflectionRequest"))
            return
        response = self._response_to(request)
        response.valid_host = request.host
        response.original_request.CopyFrom(request)
        self._call.send(encode_message(response.SerializeToString()))

    def messages_ended(self) -> None:
        self._call.finish()

    def pause_writing(self) -> None:
        self._call.pause_reading()  # responses are larger than requests, and may be unread

    def resume_writing(self) -> None:
        self._call.resume_reading()

    def _response_to(self, request: ServerReflectionRequest) -> ServerReflectionResponse:
        asked = request.WhichOneof("message_request")
        if asked == "list_services":
            services = [ServiceResponse(name=name) for name in self._services]
            return ServerReflectionResponse(list_services_response=ListServiceResponse(service=services))
        if asked == "file_by_filename":
            return _find(POOL.FindFileByName, request.file_by_filename)
        if asked == "file_containing_symbol":
            return _find(_file_of, request.file_containing_symbol)
        if asked is None:
            return _error(Status.INVALID_ARGUMENT, "nothing is asked for")
        return _error(Status.UNIMPLEMENTED, "extensions are not supported")


def _find(find: Callable[[str], FileDescriptor], name: str) -> ServerReflectionResponse:
    """A file with all that it imports, or that there is none."""
    try:
        found = find(name)
    except KeyError:
        return _error(Status.NOT_FOUND, "there is nothing of this name")
    files = FileDescriptorResponse(
        file_descriptor_proto=[file.serialized_pb for file in _with_imports(found)]
    )
    return ServerReflectionResponse(file_descriptor_response=files)


def _file_of(symbol: str) -> FileDescriptor:
    """The file that describes a service, method or type; a KeyError if there is none."""
    try:
        return POOL.FindFileContainingSymbol(symbol)
    except KeyError:  # protobuf does not look for methods
        service, _, method = symbol.rpartition(".")
        return POOL.FindServiceByName(service).methods_by_name[method].containing_service.file


def _with_imports(file: FileDescriptor) -> Iterable[FileDescriptor]:
    files = {file.name: file}
    for imported in file.dependencies:
        files |= {each.name: each for each in _with_imports(imported)}
    return files.values()


def _error(status: Status, text: str) -> ServerReflectionResponse:
    return ServerReflectionResponse(error_response=ErrorResponse(error_code=status, error_message=text))
