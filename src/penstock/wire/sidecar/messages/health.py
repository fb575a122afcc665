"""Messages of gRPC's health checking, as in `health.proto`; their types are in `health.pyi`."""

from penstock.wire.sidecar.schema import load

globals().update(load("health.binpb"))
