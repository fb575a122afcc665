"""A page for people, made of the OpenAPI document: no script, and nothing that is loaded from elsewhere."""

import re
from collections.abc import Iterator
from html import escape
from shlex import quote as shell_quote
from typing import Any
from urllib.parse import quote

from msgspec import json

_CODE = re.compile("`([^`]+)`")


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
    answers = [
        _row("td", status, _marked(answer["description"]))
        for status, answer in operation["responses"].items()
    ]
    parts.append(f"<table>{_row('th', 'status', 'meaning')}{''.join(answers)}</table>")
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
body { font: 16px/1.5 sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h2 { margin-top: 3rem; text-transform: capitalize; } h3 { margin-top: 2.5rem; }
code, pre { font: 14px/1.4 monospace; background: #f3f3f0; padding: .1em .3em; }
h3 code { font-size: 17px; padding: .3em .5em; } pre { padding: .8em; overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; } th { text-align: left; font-weight: 600; }
td, th { border-bottom: 1px solid #ddd; padding: .25rem 1rem .25rem 0; vertical-align: top; }
nav p { margin: 1rem 0 0; font-weight: 600; text-transform: capitalize; } nav ul { margin: 0; }
</style>"""
