"""Messages of NexusD's service, as in `nexusd.proto`; their types are in `nexusd.pyi`."""

from penstock.wire.sidecar.schema import load

globals().update(load("nexusd.binpb"))
