"""The same as `reflection.py`, for tools that know an older name of the service."""

from penstock.wire.sidecar.schema import load

globals().update(load("reflection_v1alpha.binpb"))
