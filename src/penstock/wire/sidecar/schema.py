"""Message classes of compiled `.proto` files.

They are in a descriptor pool of their own, so that a program can also have classes of the same names, made
from its own copy of a `.proto` file.
"""

from importlib.resources import files

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message_factory import GetMessageClass

POOL = DescriptorPool()
"""Everything that this server's messages are described by."""


def load(name: str) -> dict[str, object]:
    """The classes, enumerations and values of a compiled file, by their names."""
    compiled = FileDescriptorSet.FromString(files(f"{__package__}.messages").joinpath(name).read_bytes())
    names: dict[str, object] = {}
    for file in compiled.file:
        POOL.Add(file)
        described = POOL.FindFileByName(file.name)
        names["DESCRIPTOR"] = described
        names |= _names_in(described)
    return names


def _names_in(described: FileDescriptor) -> dict[str, object]:
    names: dict[str, object] = {
        name: GetMessageClass(message) for name, message in described.message_types_by_name.items()
    }
    for name, enumeration in described.enum_types_by_name.items():
        names[name] = EnumTypeWrapper(enumeration)
        names |= {value.name: value.number for value in enumeration.values}
    return names
