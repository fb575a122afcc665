"""The messages of NexusD's service, as `nexusd.proto` says; what types they have is in `nexusd.pyi`."""

from penstock.wire.sidecar.schema import load

globals().update(load("nexusd.binpb"))
