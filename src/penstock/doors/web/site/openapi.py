"""OpenAPI document, and the documentation page made of it."""

import re
from asyncio import to_thread
from collections.abc import Iterator
from html import escape
from shlex import quote as shell_quote
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from msgspec import json

from penstock.doors.web.support.requests import refuse_unknown_parameters
from penstock.doors.web.support.responses import UNSNIFFED, Detail, components, json_response, reference_to
from penstock.net.http.errors import JSON, PROBLEM, is_api
from penstock.net.http.routes import OPEN_PATHS

ABOUT = """\
One topic space behind several doors. Errors below `/api/v1` are `application/problem+json`
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
_CODE = re.compile("`([^`]+)`")


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
    for status, response in responses.items():
        content = response.get("content", {})
        if status == UNKNOWN or PROBLEM in content:
            response["content"] = {JSON: {"schema": reference_to(Detail)}}
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
        return json_response(await to_thread(app.openapi))

    @router.get("/docs")
    @router.get("/redoc")  # where clients of the In-memory Pub/Sub had another one
    async def docs(request: Request) -> Response:
        document = await to_thread(app.openapi)  # the first call is slow
        return Response(page_of(document, str(request.base_url)), 200, PAGE_HEADERS, "text/html")

    return router


def page_of(document: dict[str, Any], address: str) -> str:
    """Render every operation with its parameters, an example, and its responses.

    Args:
        address: the server address in the examples.
    """
    info, tags = document["info"], document["tags"]
    parts = [_HEAD, f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>", _text(info["description"])]
    parts.append('<p>The same for programs: <a href="openapi.json">openapi.json</a>.</p>')
    by_tag = {tag["name"]: list(_operations(document, tag["name"])) for tag in tags}
    parts += ["<nav>", *(_contents(tag, operations) for tag, operations in by_tag.items()), "</nav>"]
    for tag in tags:
        parts.append(f"<h2>{escape(tag['name'])}</h2>{_text(tag['description'])}")
        parts += [_operation(*each, address) for each in by_tag[tag["name"]]]
    return "\n".join(parts)


def _operations(document: dict[str, Any], tag: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if tag in operation.get("tags", ()):
                yield path, method.upper(), operation


def _contents(tag: str, operations: list[tuple[str, str, dict[str, Any]]]) -> str:
    entries = [
        f'<li><a href="#{_anchor(path, method)}">{method} {escape(path)}</a>: {escape(each["summary"])}</li>'
        for path, method, each in operations
    ]
    return f"<p>{escape(tag)}</p><ul>{''.join(entries)}</ul>"


def _anchor(path: str, method: str) -> str:
    return quote(f"{method.lower()}{path}".replace("/", "-"), safe="")


def _operation(path: str, method: str, operation: dict[str, Any], address: str) -> str:
    parts = [f'<h3 id="{_anchor(path, method)}"><code>{method} {escape(path)}</code></h3>']
    parts += [_text(text) for text in (operation["summary"], operation.get("description")) if text]
    if operation.get("parameters"):
        rows = [_parameter(each) for each in operation["parameters"]]
        parts.append(f"<table>{_row('th', 'parameter', 'in', 'default', 'meaning')}{''.join(rows)}</table>")
    if "requestBody" in operation:
        kinds = ", ".join(f"<code>{escape(kind)}</code>" for kind in operation["requestBody"]["content"])
        parts.append(f"<p>Body: {kinds}</p>")
    parts.append(f"<pre>{escape(_example(path, method, operation, address))}</pre>")
    rows = [
        _row("td", status, _marked(response["description"]))
        for status, response in operation["responses"].items()
    ]
    parts.append(f"<table>{_row('th', 'status', 'meaning')}{''.join(rows)}</table>")
    return "\n".join(parts)


def _parameter(parameter: dict[str, Any]) -> str:
    default = parameter["schema"].get("default")
    usual = "required" if parameter.get("required") else "" if default in (None, []) else str(default)
    name = f"<code>{escape(parameter['name'])}</code>"
    meaning = _marked(parameter.get("description", ""))
    return _row("td", name, parameter["in"], escape(usual), meaning)


def _row(cell: str, *contents: str) -> str:
    return f"<tr>{''.join(f'<{cell}>{each}</{cell}>' for each in contents)}</tr>"


def _example(path: str, method: str, operation: dict[str, Any], address: str) -> str:
    """Return an example call with the required parameters only."""
    pairs = []
    for parameter in operation.get("parameters", ()):
        value = str(parameter["schema"].get("examples", ["..."])[0])
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", value)
        elif parameter.get("required"):
            pairs.append(f"{parameter['name']}={quote(value)}")
    body = _body(operation.get("requestBody"))
    is_plain = method == "GET" or (method == "POST" and body)
    words = ["curl", *([] if is_plain else ["-X", method]), *body]
    target = f"{address.rstrip('/')}{path}{'?' if pairs else ''}{'&'.join(pairs)}"
    return " ".join([*words, shell_quote(target)])


def _body(described: dict[str, Any] | None) -> list[str]:
    """Return the curl options for a body; JSON needs no content type."""
    if described is None:
        return []
    for kind, content in described["content"].items():
        if "example" in content:
            example = content["example"]
            text = example if isinstance(example, str) else json.encode(example).decode()
            said = [] if kind == "application/json" else ["-H", shell_quote(f"Content-Type: {kind}")]
            return [*said, "--data-binary", shell_quote(text)] if said else ["-d", shell_quote(text)]
    return ["--data-binary", "@file"]


def _text(text: str) -> str:
    return f"<p>{_marked(text)}</p>"


def _marked(text: str) -> str:
    """Text with what is between backticks as code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


_HEAD = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>Penstock: the HTTP API</title><style>
:root { color-scheme: light dark; --ink: #1d2430; --soft: #5b6675; --paper: #fff; --panel: #f4f6f8;
  --line: #dde2e8; --accent: #0b6bcb; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --soft: #9aa6b5; --paper: #12161c;
  --panel: #1b212a; --line: #2c3540; --accent: #6cb2ff; } }
* { box-sizing: border-box; }
body { font: 16px/1.6 system-ui, sans-serif; max-width: 66rem; margin: 0 auto; padding: 2rem 1.25rem 6rem;
  color: var(--ink); background: var(--paper); overflow-wrap: break-word; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 1rem; }
h2 { margin: 3.5rem 0 0; padding-bottom: .3rem; border-bottom: 2px solid var(--line);
  text-transform: capitalize; }
h3 { margin: 2.5rem 0 .5rem; font-weight: 600; scroll-margin-top: 1rem; }
a { color: var(--accent); text-decoration: none; } a:hover, a:focus-visible { text-decoration: underline; }
code, pre { font: .9em/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; background: var(--panel);
  border-radius: 4px; }
code { padding: .1em .35em; }
pre { padding: .8em 1em; overflow-x: auto; border: 1px solid var(--line); }
h3 code { padding: .35em .6em; border-left: 4px solid var(--accent); font-size: 1rem; }
table { display: block; overflow-x: auto; border-collapse: collapse; margin: 1rem 0; font-size: .95em; }
th { text-align: left; font-weight: 600; color: var(--soft); }
td, th { border-bottom: 1px solid var(--line); padding: .35rem 1.25rem .35rem 0; vertical-align: top; }
nav { background: var(--panel); border: 1px solid var(--line); border-radius: 8px;
  padding: .5rem 1.25rem 1.25rem; }
nav p { margin: 1rem 0 .2rem; font-weight: 600; text-transform: capitalize; }
nav ul { margin: 0; padding-left: 1.1rem; }
@media print { nav { display: none; } body { max-width: none; } }
</style>"""
