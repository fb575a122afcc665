"""The page of all HTTP calls, as the server describes itself in OpenAPI."""

from collections.abc import Iterator
from typing import Any

from docs.generating.running import offer
from docs.generating.tables import code, table

INTRODUCTION = """\
# HTTP calls

Generated from the OpenAPI document of the server by `make docs`; do not edit it here.

Every call with its parameters, its body and its answers. [The HTTP API](http-api.md) explains them, with
what holds for all: who may call, errors, pages. A running server has the same at `/docs`, with a command to
try each call, and at `/openapi.json` with the schemas of all bodies. [Events](events-api.md),
[streams](streams-api.md) and [`/ws`](websocket-api.md) have pages of their own.
"""
METHODS = ("get", "put", "post", "patch", "delete")


def http_page() -> str:
    """The whole page, as text."""
    parts = [INTRODUCTION]
    for tag in offer().openapi["tags"]:
        parts += [f"## {tag['name'].capitalize()}\n", f"{tag['description']}\n"]
        for path, method, operation in operations(tag["name"]):
            parts += _operation(path, method, operation)
    return "\n".join(parts)


def operations(tag: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The calls of one kind: path, method and description."""
    for path, methods in offer().openapi["paths"].items():
        for method in METHODS:
            if tag in methods.get(method, {}).get("tags", ()):
                yield path, method.upper(), methods[method]


def _operation(path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"### {method} {path}\n"
    said = operation.get("description", "")
    yield f"{operation['summary']}.{' ' if said else ''}{_text(said)}\n"
    if parameters := operation.get("parameters"):
        yield table(("parameter", "in", "default", "meaning"), map(_parameter, parameters))
    if body := operation.get("requestBody"):
        yield f"Body: {', '.join(map(code, body['content']))}{_example(body['content'])}\n"
    rows = [(status, _text(each["description"])) for status, each in operation["responses"].items()]
    yield table(("status", "meaning"), rows)


def _parameter(parameter: dict[str, Any]) -> list[str]:
    default = parameter["schema"].get("default")
    usual = "required" if parameter.get("required") else "" if default in (None, []) else code(_word(default))
    return [code(parameter["name"]), parameter["in"], usual, _text(parameter.get("description", ""))]


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _example(content: dict[str, Any]) -> str:
    schemas = [each["schema"]["$ref"] for each in content.values() if "$ref" in each.get("schema", {})]
    names = sorted({schema.rpartition("/")[2] for schema in schemas})
    return f", as {' or '.join(map(code, names))} describes it" if names else ""


def _text(text: str) -> str:
    return " ".join(text.split())
