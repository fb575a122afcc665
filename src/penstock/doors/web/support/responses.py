"""Responses of the FastAPI application: JSON by msgspec, and their OpenAPI descriptions.

The shape of a response is a `msgspec.Struct`: it is encoded directly, and gives the schema of the OpenAPI
document.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
from fastapi import Response

from penstock.errors import (
    BadCredentials,
    InvalidRequest,
    NotAuthorized,
    PenstockError,
    QuotaExceeded,
    ShuttingDown,
)
from penstock.net.http.errors import JSON, PROBLEM, status_of

UNSNIFFED = {"X-Content-Type-Options": "nosniff"}
"""Header against content sniffing by browsers."""
BINARY = {"type": "string", "format": "binary"}
"""The schema of a body that is bytes as they are."""
SCHEMAS = "#/components/schemas/{name}"
TARGET_TOO_LONG = 414
"""Response of the listener to a target that is too long."""

_shapes: dict[type, None] = {}  # every type of a declared response

_ANY_TIME: tuple[type[PenstockError], ...] = (
    InvalidRequest,
    BadCredentials,
    NotAuthorized,
    QuotaExceeded,
    ShuttingDown,
    PenstockError,
)


class RequestFault(msgspec.Struct, omit_defaults=True):
    """One thing that is wrong with a request."""

    where: str = ""
    index: int | None = None
    code: str = ""
    detail: str = ""


class Problem(msgspec.Struct, omit_defaults=True):
    """An error, as RFC 9457 wants it. Codes never change their meaning; texts may improve."""

    title: str
    status: int
    detail: str
    code: str
    type: str = "about:blank"
    retryable: bool = False
    errors: list[RequestFault] = []


class Detail(msgspec.Struct):
    """An error, as the callers of paths outside of `/api/v1` know it."""

    detail: str


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A value as JSON."""
    return Response(msgspec.json.encode(value), status, {**UNSNIFFED, **(headers or {})}, media_type=JSON)


def describe(
    shape: type | None,
    *errors: type[PenstockError],
    status: int = 200,
    media: str = JSON,
    text: str = "As asked.",
) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of an operation: a shape (None without a body), and errors.

    The shape of a body that is not JSON is `bytes`. Errors that any operation may have need not be named.
    """
    described: dict[int | str, dict[str, Any]] = {status: {"description": text}}
    if shape is not None:
        described[status]["content"] = {media: {"schema": reference_to(shape)}}
    causes: dict[int, list[str]] = {TARGET_TOO_LONG: [InvalidRequest.code]}  # the listener's own
    for error in (*errors, *_ANY_TIME):
        codes = causes.setdefault(status_of(error), [])
        if error.code not in codes:
            codes.append(error.code)
    for failure, codes in sorted(causes.items()):
        problem = {PROBLEM: {"schema": reference_to(Problem)}}
        described.setdefault(failure, {"description": ", ".join(codes), "content": problem})
    return described


def reference_to(shape: type) -> dict[str, Any]:
    """The schema of a type; those that have a name are referred to."""
    _shapes[shape] = None
    return dict(_schema_of(shape))


@cache  # nearly all requests are for the same few
def _schema_of(shape: type) -> dict[str, Any]:
    if shape is bytes:
        return BINARY
    (schema,), _ = msgspec.json.schema_components((shape,), ref_template=SCHEMAS)
    return schema


def components() -> dict[str, Any]:
    """The schemas of everything that was referred to."""
    _, named = msgspec.json.schema_components(tuple(_shapes), ref_template=SCHEMAS)
    return dict(named)
