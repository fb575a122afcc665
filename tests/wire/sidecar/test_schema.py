"""Messages of gRPC's own services: their names and numbers are those that gRPC's packages have."""

from typing import Any

import pytest
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from penstock.wire.sidecar.messages import health, reflection, reflection_v1alpha


def described(file: FileDescriptor) -> str:
    """Everything that a file says, but what it is called and what other languages and JSON call things."""
    said = FileDescriptorProto()
    file.CopyToProto(said)
    said.ClearField("name")
    said.ClearField("options")
    return "\n".join(line for line in str(said).splitlines() if "json_name" not in line)


@pytest.mark.parametrize(("ours", "theirs"), [(health, health_pb2), (reflection_v1alpha, reflection_pb2)])
def test_a_file_says_what_the_one_of_grpc_says(ours: Any, theirs: Any) -> None:
    assert described(ours.DESCRIPTOR) == described(theirs.DESCRIPTOR)


def test_both_versions_of_reflection_say_the_same() -> None:
    old = described(reflection_v1alpha.DESCRIPTOR)
    assert old.replace("grpc.reflection.v1alpha", "grpc.reflection.v1") == str(
        described(reflection.DESCRIPTOR)
    )
