"""OpenAPI document, and the documentation page made of it."""

from asyncio import to_thread
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi

from penstock.doors.web.site.page import page_of
from penstock.doors.web.support.parameters import refuse_unknown_parameters
from penstock.doors.web.support.responses import UNSNIFFED, Detail, components, json_answer, reference_to
from penstock.net.http.errors import JSON, PROBLEM, is_api
from penstock.net.http.routes import OPEN_PATHS

ABOUT = """\
One topic space behind several doors. Everything below `/api/v1` answers errors as `application/problem+json`
with a stable `code`; a cursor is valid at every door."""
SECURITY = {
    "basic": {"type": "http", "scheme": "basic"},
    "bearer": {"type": "http", "scheme": "bearer", "description": "`user:password`, or the base64 of it."},
}
UNKNOWN = "401"
WHO = (UNKNOWN, "403", "429")
"""Responses about authentication."""
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    **UNSNIFFED,
}
TAGS = {
    "publish": "Send messages.",
    "stage": "Put many messages in place, and publish them all at once or not at all.",
    "topics": "Topics that are made before they are used, as clients of the In-memory Pub/Sub do.",
    "read": "Topics, their history, and their retained values.",
    "log": "The log in bulk, as Arrow, and the holds that keep it.",
    "clients": "Clients, slow consumers, and why a message was not delivered.",
    "health": "Whether the server works, and its figures.",
    "about": "What is here.",
}


def describe_app(app: FastAPI) -> None:
    """Add the schemas of our responses to the OpenAPI document."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=ABOUT,
        routes=app.routes,
        tags=[{"name": name, "description": text} for name, text in TAGS.items()],
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    document["components"]["securitySchemes"] = SECURITY
    document["security"] = [{}, *({name: []} for name in SECURITY)]  # none on an open server
    for path, methods in document["paths"].items():
        for operation in methods.values():
            if "HTTPValidationError" in str(operation["responses"].get("422")):
                del operation["responses"]["422"]  # nearly all of our errors are 400, and declared
            if not is_api(path):
                _describe_elsewhere(operation["responses"])
            if path in OPEN_PATHS:
                _describe_open(operation)
            for parameter in operation.get("parameters", ()):
                parameter["schema"] = _with_bounds(parameter["schema"])
    schemas.update(components())
    return document


def _describe_elsewhere(responses: dict[str, Any]) -> None:
    """Errors outside of the API: those that are not the operation's own come from the listener, as JSON."""
    for status, answer in responses.items():
        content = answer.get("content", {})
        if status == UNKNOWN or PROBLEM in content:
            answer["content"] = {JSON: {"schema": reference_to(Detail)}}
        elif status >= "400" and JSON not in content:
            content[JSON] = {"schema": reference_to(Detail)}


def _describe_open(operation: dict[str, Any]) -> None:
    """No credentials are needed, so no request is refused for them."""
    operation["security"] = []
    for status in WHO:
        operation["responses"].pop(status, None)


def _with_bounds(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema with its bounds by their right names; pydantic has others where something may be left out."""
    return {_BOUNDS.get(key, key): value for key, value in schema.items()}


_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


def pages(app: FastAPI) -> APIRouter:
    """The document itself, and the page made of it."""
    router = APIRouter(include_in_schema=False, dependencies=[Depends(refuse_unknown_parameters)])

    @router.get("/openapi.json")
    async def openapi() -> Response:
        return json_answer(await to_thread(app.openapi))

    @router.get("/docs")
    @router.get("/redoc")  # where clients of the In-memory Pub/Sub had another one
    async def docs(request: Request) -> Response:
        document = await to_thread(app.openapi)  # the first call is slow
        return Response(page_of(document, str(request.base_url)), 200, PAGE_HEADERS, "text/html")

    return router
