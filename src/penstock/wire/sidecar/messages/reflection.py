"""The messages of gRPC's reflection, as `reflection.proto` says; their types are in `reflection.pyi`."""

from penstock.wire.sidecar.schema import load

globals().update(load("reflection.binpb"))
