"""What the API says of itself: the OpenAPI document, and a page for people that needs nothing else."""

from html import escape
from typing import Any

from fastapi import APIRouter, FastAPI, Response
from fastapi.openapi.utils import get_openapi

from penstock.doors.web.answers import components, json_answer

ABOUT = """\
One topic space behind several doors. Everything below `/api/v1` answers errors as `application/problem+json`
with a stable `code`; a cursor is valid at every door."""
SECURITY = {
    "basic": {"type": "http", "scheme": "basic"},
    "bearer": {"type": "http", "scheme": "bearer", "description": "`user:password`, or the base64 of it."},
}
TAGS = {
    "publish": "Send messages.",
    "stage": "Put many messages in place, and publish them all at once or not at all.",
    "read": "Topics, their history, and their retained values.",
    "log": "The log in bulk, as Arrow, and the holds that keep it.",
    "clients": "Who is known, who is slow, and why something was not delivered.",
    "health": "Whether the server works, and its figures.",
    "about": "What is here.",
}


def describe_app(app: FastAPI) -> None:
    """See to it that the OpenAPI document has the schemas of our answers."""

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
    schemas.update(components())
    document["components"]["securitySchemes"] = SECURITY
    document["security"] = [{}, *({name: []} for name in SECURITY)]  # none on an open server
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)  # ours are 400, and declared
            for parameter in operation.get("parameters", ()):
                parameter["schema"] = _with_bounds(parameter["schema"])
    return document


def _with_bounds(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema with its bounds by their right names; pydantic has others where something may be left out."""
    return {_BOUNDS.get(key, key): value for key, value in schema.items()}


_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


def pages(app: FastAPI) -> APIRouter:
    """The document itself, and the page made of it."""
    router = APIRouter(include_in_schema=False)

    @router.get("/openapi.json")
    async def openapi() -> Response:
        return json_answer(app.openapi())

    @router.get("/docs")
    async def docs() -> Response:
        return Response(_page(app.openapi()), media_type="text/html")

    return router


def _page(document: dict[str, Any]) -> str:
    """Every operation with its parameters and answers; no script, and nothing that is loaded."""
    info = document["info"]
    parts = [_HEAD, f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>"]
    parts.append(f"<p>{escape(info['description'])}</p>")
    parts.append('<p>The same for programs: <a href="openapi.json">openapi.json</a>.</p>')
    for tag in document["tags"]:
        operations = [
            (path, method, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
            if operation.get("tags", ["about"])[0] == tag["name"]
        ]
        if operations:
            parts.append(f"<h2>{escape(tag['name'])}</h2><p>{escape(tag['description'])}</p>")
            parts += [_operation(*each) for each in operations]
    return "\n".join(parts)


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    title = f"<h3><code>{method.upper()} {escape(path)}</code></h3>"
    texts = (operation.get("summary", ""), operation.get("description", ""))
    about = "".join(f"<p>{escape(text)}</p>" for text in texts if text)
    rows = [
        f"<tr><td><code>{escape(each['name'])}</code></td><td>{each['in']}</td>"
        f"<td>{escape(each.get('description', ''))}</td></tr>"
        for each in operation.get("parameters", ())
    ]
    parameters = f"<table>{''.join(rows)}</table>" if rows else ""
    answers = "".join(
        f"<li><code>{escape(status)}</code> {escape(answer['description'])}</li>"
        for status, answer in operation["responses"].items()
    )
    return f"{title}{about}{parameters}<ul>{answers}</ul>"


_HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Penstock: the HTTP API</title><style>
body { font: 16px/1.5 sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h3 { border-top: 1px solid #ccc; padding-top: 1rem; } td { padding: 0 1rem 0 0; vertical-align: top; }
</style>"""
