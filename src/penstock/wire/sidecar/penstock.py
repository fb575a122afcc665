"""The messages of our own service, as `penstock.proto` says; what types they have is in `penstock.pyi`."""

from penstock.wire.sidecar.schema import load

globals().update(load("penstock.binpb"))
