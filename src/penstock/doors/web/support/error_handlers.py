"""Error handlers of the FastAPI application, in the form of each path.

Below `/api/v1` every error is a problem document (RFC 9457). The compatible paths of other systems have their
`{"detail": ...}`. Tracebacks are never sent.
"""

import re
from http import HTTPStatus

import msgspec
import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from penstock.doors.web.support.responses import UNSNIFFED, json_response
from penstock.errors import InvalidRequest, PenstockError
from penstock.net.http.errors import (
    INTERNAL_DETAIL,
    PROBLEM,
    headers_of,
    is_api,
    problem_of,
    response_for,
    response_to,
    status_of,
)
from penstock.net.http.routes import allow

log = structlog.get_logger("penstock.web")

_PARAMETER = re.compile(r"\{[^}]*\}")
DOCS = "/docs"
UNPROCESSABLE = 422
"""Status of an invalid body at the paths of other systems."""


def handle_failures(app: FastAPI) -> None:
    """Give an application its error handlers."""
    app.add_exception_handler(PenstockError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_accident)


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, PenstockError)
    status, body, media = response_to(error, request.url.path)
    return Response(body, status, {**UNSNIFFED, **dict(headers_of(error))}, media)


async def _on_invalid(request: Request, error: Exception) -> Response:
    """Parameters or a body that FastAPI refused."""
    assert isinstance(error, RequestValidationError)
    faults = [
        {"where": ".".join(str(part) for part in fault["loc"]), "detail": fault["msg"]}
        for fault in error.errors()
    ]
    detail = "; ".join(f"{fault['where']}: {fault['detail']}" for fault in faults)
    refusal = InvalidRequest(detail)
    if not is_api(request.url.path):
        if any(fault["where"].startswith("body") for fault in faults):
            return json_response({"detail": error.errors()}, UNPROCESSABLE)  # as FastAPI has it
        return json_response({"detail": detail}, status_of(refusal))
    body = msgspec.json.encode(problem_of(refusal, errors=faults))
    return Response(body, status_of(refusal), UNSNIFFED, PROBLEM)


async def _on_http_error(request: Request, error: Exception) -> Response:
    """A path or a method that is not offered."""
    assert isinstance(error, HTTPException)
    status, detail, path = HTTPStatus(error.status_code), error.detail, request.url.path
    code = status.phrase.lower().replace(" ", "-")
    if status is HTTPStatus.NOT_FOUND and is_api(path):
        detail = f"there is nothing at {path}; {DOCS} has everything that there is"
    _, body, media = response_for(status, detail, code, path)
    headers = {**UNSNIFFED, **(error.headers or {})}
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = allow(_methods_at(request))  # the error knows those of one route only
    return Response(body, status, headers, media)


def _methods_at(request: Request) -> set[str]:
    """Return the methods of a path: of the templates that match it, the one with the most literal text."""
    routes = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    template = max((route.path for route in routes), key=_literal_size, default="")
    routes = [route for route in routes if route.path == template]
    return {method for route in routes for method in getattr(route, "methods", None) or ()}


def _literal_size(template: str) -> int:
    return len(_PARAMETER.sub("", template))


async def _on_accident(request: Request, error: Exception) -> Response:
    """Log an error of the server, and respond without details."""
    log.exception("request failed", path=request.url.path, exc_info=error)
    status, body, media = response_for(
        HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL_DETAIL, PenstockError.code, request.url.path
    )
    return Response(body, status, UNSNIFFED, media)
