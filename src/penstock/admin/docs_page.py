"""OpenAPI descriptions as HTML pages: what each operation takes and gives, an example, and a form to try it. Pure."""

from __future__ import annotations

import json
import re
from html import escape
from typing import Any, Final

from penstock.admin.docs_example import example_of

_METHODS: Final = ("get", "put", "post", "delete", "patch", "head")
_TOP: Final = (
    '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    '<meta name="color-scheme" content="light dark">\n'
    '<title>{title}</title>\n<link rel="icon" href="icon.svg" type="image/svg+xml">\n'
    '<link rel="stylesheet" href="page.css">\n<link rel="stylesheet" href="docs.css">\n'
    '<script src="docs.js" type="module"></script>\n</head>\n'
    '<body class="docs">\n<main>\n'
)
_END: Final = "</main>\n</body>\n</html>\n"
_CODE: Final = re.compile(r"`([^`]+)`")
_PARAMETER: Final = re.compile(r"\{([^}]+)\}")
# The admin listener's own service: the page is on it, so its operations are asked for directly.
_HERE: Final = "node"
_PROBLEM: Final = "Problem"


def index_page(described: dict[str, dict[str, Any]]) -> str:
    """List the services of the node."""
    rows = [
        f'<li class="card"><a href="/docs/{escape(name)}"><b>{escape(name)}</b></a> '
        f'<span class="dim">{len(_operations(each))} operations</span></li>'
        for name, each in sorted(described.items())
    ]
    body = (
        '<h1>API</h1>\n<p><a href="/">Back to the node</a></p>\n'
        "<p>Every service speaks HTTP and JSON on its own port, and through the gateway. What follows is drawn from "
        "the routes of this node; each operation has an example and can be tried with the operator's capability.</p>\n"
        '<ul class="plain">\n' + "\n".join(rows) + "\n</ul>\n"
    )
    return _TOP.format(title="API - penstock") + body + _END


def service_page(service: str, described: dict[str, dict[str, Any]]) -> str:
    """Write down every operation of one service and the shapes it takes and gives."""
    description = described[service]
    schemas: dict[str, Any] = description.get("components", {}).get("schemas", {})
    writer = _Writer(service, schemas)
    operations = "".join(writer.operation(*each) for each in _operations(description))
    shapes = "".join(_shape(name, schema) for name, schema in sorted(schemas.items()))
    head = (
        f'<h1>{escape(service)}</h1>\n<p class="dim">version {escape(description["info"]["version"])}, '
        f"OpenAPI {escape(description['openapi'])}. "
        '<a href="/docs">All services</a>, <a href="/">the node</a></p>\n'
    )
    refusals = (
        f'<p>A refusal is always a <a href="#{_PROBLEM}">{_PROBLEM}</a> (<code>application/problem+json</code>): its '
        "<code>code</code> is one of those named with each operation; <code>corr_id</code> finds it in the log.</p>\n"
    )
    return (
        _TOP.format(title=f"{escape(service)} - penstock")
        + f"{head}{refusals}<h2>Operations</h2>\n{operations}<h2>Shapes</h2>\n{shapes}{_END}"
    )


def _operations(description: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    paths: dict[str, dict[str, Any]] = description["paths"]
    return [(method, path, found[method]) for path, found in paths.items() for method in _METHODS if method in found]


class _Writer:
    """Writes the operations of one service."""

    def __init__(self, service: str, schemas: dict[str, Any]) -> None:
        self._service = service
        self._schemas = schemas

    def operation(self, method: str, path: str, operation: dict[str, Any]) -> str:
        """Write one operation: what it is, an example, what comes back, and the form."""
        guard = "needs a capability" if operation.get("security") else "open to anyone"
        needed = operation.get("x-penstock-op")
        told = f"{guard}, <code>op={escape(needed)}</code>" if needed and operation.get("security") else guard
        takes = _schema_of(operation.get("requestBody"))
        body = None if takes is None else json.dumps(example_of(takes, self._schemas), indent=2)
        head = f'<span class="verb">{method.upper()}</span> <code>{escape(path)}</code>'
        summary = f'<span class="dim">{escape(operation.get("summary", ""))}</span>'
        parts = [
            f'<details class="card operation"><summary>{head} {summary}</summary>',
            rendered(operation.get("description", "")),
            f"<p>{'Takes ' + _kind(takes) + '; ' if takes is not None else ''}{told}.</p>",
            f'<p class="dim">Example</p>\n<pre tabindex="0">{escape(_curl(method, path, body))}</pre>',
            *self._answers(operation),
            self._form(method, path, body),
            "</details>\n",
        ]
        return "\n".join(part for part in parts if part)

    def _answers(self, operation: dict[str, Any]) -> list[str]:
        answers = operation.get("responses", {})
        given = _schema_of(answers.get("2XX"))
        parts = []
        if given is not None:
            example = json.dumps(example_of(given, self._schemas), indent=2)
            parts.append(f'<p>Gives {_kind(given)}:</p>\n<pre tabindex="0">{escape(example)}</pre>')
        rows = [
            f"<tr><th scope=row>{escape(status)}</th><td>{rendered(answer.get('description', ''))}</td></tr>"
            for status, answer in answers.items()
            if status not in {"2XX", "default"}
        ]
        if rows:
            parts.append(f'<div class="scroll"><table><caption>Refusals</caption>{"".join(rows)}</table></div>')
        return parts

    def _form(self, method: str, path: str, body: str | None) -> str:
        if path.endswith("/stream"):
            return '<p class="dim">It answers as a stream: try it with curl.</p>'
        base = "" if self._service == _HERE else f"/api/{self._service}"
        fields = [_input(f"p:{name}", name) for name in _PARAMETER.findall(path)]
        if method in {"get", "delete"}:
            fields.append(_input("query", "Query, as name=value&amp;name=value", required=False))
        if body is not None:
            rows = min(14, body.count("\n") + 2)
            fields.append(
                f'<label>Body<textarea name="body" rows="{rows}" spellcheck="false">{escape(body)}</textarea></label>'
            )
        elif method in {"put", "post"}:
            fields.append('<label>Body<textarea name="body" rows="3" spellcheck="false"></textarea></label>')
        return (
            f'<form class="try" data-method="{method.upper()}" data-path="{escape(base + path)}">{"".join(fields)}'
            '<div class="acts"><button type="submit" class="main">Try it</button><span role="status"></span></div>'
            '<pre tabindex="0" aria-label="Answer" hidden></pre></form>'
        )


def _input(name: str, label: str, *, required: bool = True) -> str:
    return f'<label>{label}<input name="{escape(name)}"{" required" if required else ""} spellcheck="false"></label>'


def _curl(method: str, path: str, body: str | None) -> str:
    words = ["curl", "-X", method.upper()] if method != "get" else ["curl"]
    command = f'{" ".join(words)} -H "Authorization: Bearer $TOKEN" $URL{path}'
    return (
        command
        if body is None
        else f"{command} \\\n  -H 'Content-Type: application/json' -d '{json.dumps(json.loads(body))}'"
    )


def rendered(text: str) -> str:
    """Turn the little Markdown of descriptions into HTML: paragraphs, lists and code."""
    parts: list[str] = []
    for block in text.strip().split("\n\n"):
        lines = block.splitlines()
        if lines and all(line.startswith("- ") for line in lines):
            parts.append(f"<ul class=plain>{''.join(f'<li>{_inline(line[2:])}</li>' for line in lines)}</ul>")
        elif lines:
            parts.append(f"<p>{_inline(' '.join(lines))}</p>")
    return "".join(parts)


def _inline(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text))


def _schema_of(content: dict[str, Any] | None) -> dict[str, Any] | None:
    kinds: dict[str, dict[str, Any]] = (content or {}).get("content", {})
    return next((kind["schema"] for kind in kinds.values() if "schema" in kind), None)


def _shape(name: str, schema: dict[str, Any]) -> str:
    needed = set(schema.get("required", ()))
    rows = [
        f"<tr><th scope=row><code>{escape(field)}</code></th><td>{_kind(kind)}{'' if field in needed else ', optional'}"
        f"</td><td>{rendered(kind.get('description', '') if isinstance(kind, dict) else '')}</td></tr>"
        for field, kind in schema.get("properties", {}).items()
    ]
    about = f'<div class="dim">{rendered(schema.get("description", ""))}</div>'
    body = (
        f'<div class="scroll"><table><caption>{escape(name)}</caption>{"".join(rows)}</table></div>'
        if rows
        else f"<p>{_kind(schema)}</p>"
    )
    return (
        f'<section class="card" id="{escape(name)}" tabindex="-1"><h3>{escape(name)}</h3>\n{about}\n{body}</section>\n'
    )


def _kind(schema: dict[str, Any] | bool) -> str:  # noqa: FBT001 - JSON Schema writes `true` for anything
    """Describe a schema in a few words; a reference becomes a link on the page."""
    if isinstance(schema, bool):
        return "any" if schema else "nothing"
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    for words in ("anyOf", "oneOf"):
        if words in schema:
            return " or ".join(_kind(each) for each in schema[words])
    if "enum" in schema:
        return "one of " + ", ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return escape(" ".join([str(schema.get("type", "any")), *_bounds(schema)]))


def _bounds(schema: dict[str, Any]) -> list[str]:
    words = {
        "minimum": "from {}",
        "maximum": "to {}",
        "minLength": "at least {} characters",
        "maxLength": "at most {} characters",
    }
    return [text.format(schema[key]) for key, text in words.items() if key in schema]
