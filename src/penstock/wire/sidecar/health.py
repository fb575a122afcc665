"""The messages of gRPC's health checking, as `health.proto` says; what types they have is in `health.pyi`."""

from penstock.wire.sidecar.schema import load

globals().update(load("health.binpb"))
