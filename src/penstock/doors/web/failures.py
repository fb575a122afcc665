"""Errors of the FastAPI side, in the form that the callers of each path know.

Below `/api/v1` every error is a problem document (RFC 9457). The paths that other systems had before us keep
their `{"detail": ...}`. Whatever goes wrong here, no traceback leaves.
"""

from http import HTTPStatus

import msgspec
import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from penstock.doors.http.problems import (
    INTERNAL_DETAIL,
    PROBLEM,
    answer_for,
    answer_to,
    headers_of,
    is_api,
    problem_of,
    status_of,
)
from penstock.doors.http.routes import allow
from penstock.doors.web.answers import UNSNIFFED, json_answer
from penstock.errors import InvalidRequest, PenstockError

log = structlog.get_logger("penstock.web")

DOCS = "/docs"
UNPROCESSABLE = 422
"""What the callers of other systems' paths get for a body that is not what it should be."""


def handle_failures(app: FastAPI) -> None:
    """Give an application its error handlers."""
    app.add_exception_handler(PenstockError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_accident)


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, PenstockError)
    status, body, media = answer_to(error, request.url.path)
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
        is_body = any(fault["where"].startswith("body") for fault in faults)
        return json_answer({"detail": detail}, UNPROCESSABLE if is_body else status_of(refusal))
    body = msgspec.json.encode(problem_of(refusal, errors=faults))
    return Response(body, status_of(refusal), UNSNIFFED, PROBLEM)


async def _on_http_error(request: Request, error: Exception) -> Response:
    """A path or a method that is not offered."""
    assert isinstance(error, HTTPException)
    status, detail, path = HTTPStatus(error.status_code), error.detail, request.url.path
    code = status.phrase.lower().replace(" ", "-")
    if status is HTTPStatus.NOT_FOUND and is_api(path):
        detail = f"there is nothing at {path}; {DOCS} has everything that there is"
    _, body, media = answer_for(status, detail, code, path)
    headers = {**UNSNIFFED, **(error.headers or {})}
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = allow(_methods_at(request))  # the error knows those of one route only
    return Response(body, status, headers, media)


def _methods_at(request: Request) -> set[str]:
    """What the routes of a path take together."""
    routes = (route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE)
    return {method for route in routes for method in getattr(route, "methods", None) or ()}


async def _on_accident(request: Request, error: Exception) -> Response:
    """A mistake of ours: it is for our log, not for the caller."""
    log.exception("request failed", path=request.url.path, exc_info=error)
    status, body, media = answer_for(
        HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL_DETAIL, PenstockError.code, request.url.path
    )
    return Response(body, status, UNSNIFFED, media)
