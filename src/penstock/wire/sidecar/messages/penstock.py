"""Messages of the `penstock.v1` service, as in `penstock.proto`; their types are in `penstock.pyi`."""

from penstock.wire.sidecar.schema import load

globals().update(load("penstock.binpb"))
