"""What the `.proto` files say: calls, messages, fields and their comments."""

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)
from grpc_tools import protoc  # type: ignore[import-untyped]

from docs.generating.tables import code, sentence, table

FOLDER = Path(str(files("penstock.wire.sidecar")))
MESSAGES, SERVICES, ENUMERATIONS = 4, 6, 5
"""Numbers of the parts of a file, by which comments name their place."""
FIELDS, METHODS, VALUES = 2, 2, 2

Place = tuple[int, ...]


def grpc_block(name: str) -> str:
    """Everything that one file describes."""
    described = describe(name)
    said = _comments(described)
    parts = []
    for number, service in enumerate(described.service):
        rows = [
            _method(each, said, (SERVICES, number, METHODS, at)) for at, each in enumerate(service.method)
        ]
        parts += [f"### {described.package}.{service.name}\n", table(("call", "takes", "answers", ""), rows)]
    for number, message in enumerate(described.message_type):
        parts += _message(message, said, (MESSAGES, number))
    for number, enumeration in enumerate(described.enum_type):
        parts += _enumeration(enumeration, said, (ENUMERATIONS, number))
    return "\n".join(parts)


@cache
def describe(name: str) -> FileDescriptorProto:
    """A file as the compiler of protocol buffers reads it, with its comments."""
    with TemporaryDirectory() as folder:
        result = Path(folder) / "described"
        words = ["protoc", f"-I{FOLDER}", "--include_source_info", f"--descriptor_set_out={result}"]
        if protoc.main([*words, f"{name}.proto"]) != 0:
            raise ValueError(f"{name}.proto cannot be read")
        return FileDescriptorSet.FromString(result.read_bytes()).file[0]


def _comments(described: FileDescriptorProto) -> dict[Place, str]:
    """The comment of each place: before it, or behind it in the same line."""
    places = described.source_code_info.location
    return {tuple(each.path): each.leading_comments or each.trailing_comments for each in places}


def _method(method: MethodDescriptorProto, said: dict[Place, str], place: Place) -> list[str]:
    takes = _stream_of(method.input_type, method.client_streaming)
    answers = _stream_of(method.output_type, method.server_streaming)
    return [code(method.name), takes, answers, sentence(said.get(place, ""))]


def _stream_of(type_name: str, is_stream: bool) -> str:
    name = code(type_name.rpartition(".")[2])
    return f"stream of {name}" if is_stream else name


def _message(message: DescriptorProto, said: dict[Place, str], place: Place) -> Iterator[str]:
    yield f"### {message.name}\n"
    if text := " ".join(said.get(place, "").split()):
        yield f"{text}\n"
    if message.field:
        rows = [
            [
                str(each.number),
                code(each.name),
                _type(each, message),
                sentence(said.get((*place, FIELDS, at), "")),
            ]
            for at, each in enumerate(message.field)
        ]
        yield table(("number", "field", "type", ""), rows)
    else:
        yield "It has no fields.\n"


def _type(field: FieldDescriptorProto, message: DescriptorProto) -> str:
    entries = {each.name: each for each in message.nested_type if each.options.map_entry}
    name = field.type_name.rpartition(".")[2]
    if name in entries:
        key, value = entries[name].field
        return f"map from {_plain(key)} to {_plain(value)}"
    return f"list of {_plain(field)}" if field.label == FieldDescriptorProto.LABEL_REPEATED else _plain(field)


def _plain(field: FieldDescriptorProto) -> str:
    if field.type_name:
        return code(field.type_name.rpartition(".")[2])
    return FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()


def _enumeration(enumeration: EnumDescriptorProto, said: dict[Place, str], place: Place) -> Iterator[str]:
    yield f"### {enumeration.name}\n"
    rows = [
        [str(each.number), code(each.name), sentence(said.get((*place, VALUES, at), ""))]
        for at, each in enumerate(enumeration.value)
    ]
    yield table(("number", "value", ""), rows)
