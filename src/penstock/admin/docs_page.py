"""OpenAPI descriptions as plain HTML pages, without scripts or outside files. Pure."""

from __future__ import annotations

from html import escape
from typing import Any, Final

_METHODS: Final = ("get", "put", "post", "delete", "patch", "head")
_TOP: Final = (
    '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    '<title>{title}</title>\n<link rel="icon" href="icon.svg" type="image/svg+xml">\n'
    '<link rel="stylesheet" href="page.css">\n</head>\n<body class="docs">\n<main>\n'
)
_END: Final = "</main>\n</body>\n</html>\n"


def index_page(described: dict[str, dict[str, Any]]) -> str:
    """List the services of the node."""
    rows = [
        f'<li><a href="/docs/{escape(name)}">{escape(name)}</a> '
        f'<span class="dim">{len(_operations(each))} operations</span></li>'
        for name, each in sorted(described.items())
    ]
    body = '<h1>API</h1>\n<p><a href="/">Back to the node</a></p>\n<ul class="plain">\n' + "\n".join(rows) + "\n</ul>\n"
    return _TOP.format(title="API - penstock") + body + _END


def service_page(service: str, described: dict[str, dict[str, Any]]) -> str:
    """Write down every operation of one service and the shapes it takes and gives."""
    description = described[service]
    info = description["info"]
    head = (
        f'<h1>{escape(service)}</h1>\n<p class="dim">version {escape(info["version"])}, '
        f"OpenAPI {escape(description['openapi'])}. "
        '<a href="/docs">All services</a>, <a href="/">the node</a></p>\n'
    )
    operations = "".join(_operation(method, path, each) for method, path, each in _operations(description))
    schemas = description.get("components", {}).get("schemas", {})
    shapes = "".join(_shape(name, schema) for name, schema in sorted(schemas.items()))
    return (
        _TOP.format(title=f"{escape(service)} - penstock")
        + f"{head}<h2>Operations</h2>\n{operations}<h2>Shapes</h2>\n{shapes}{_END}"
    )


def _operations(description: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    paths: dict[str, dict[str, Any]] = description["paths"]
    return [(method, path, found[method]) for path, found in paths.items() for method in _METHODS if method in found]


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    guard = "needs a capability" if operation.get("security") else "open"
    told = f'<span class="dim">{escape(operation.get("summary", ""))} ({guard})</span>'
    parts = [
        f'<details class="operation"><summary><b>{method.upper()}</b> <code>{escape(path)}</code> {told}</summary>'
    ]
    takes = _schema_of(operation.get("requestBody"))
    if takes is not None:
        parts.append(f"<p>Takes {_kind(takes)}.</p>")
    rows = [
        f"<tr><th>{escape(status)}</th><td>{escape(answer.get('description', ''))}</td><td>{_gives(answer)}</td></tr>"
        for status, answer in operation.get("responses", {}).items()
    ]
    parts.append(f'<div class="wide"><table>{"".join(rows)}</table></div></details>\n')
    return "\n".join(parts)


def _gives(answer: dict[str, Any]) -> str:
    schema = _schema_of(answer)
    return "" if schema is None else _kind(schema)


def _schema_of(content: dict[str, Any] | None) -> dict[str, Any] | None:
    kinds: dict[str, dict[str, Any]] = (content or {}).get("content", {})
    return next((kind["schema"] for kind in kinds.values() if "schema" in kind), None)


def _shape(name: str, schema: dict[str, Any]) -> str:
    needed = set(schema.get("required", ()))
    rows = [
        f"<tr><th><code>{escape(field)}</code></th><td>{_kind(kind)}{'' if field in needed else ', optional'}</td>"
        f"<td>{escape(kind.get('description', ''))}</td></tr>"
        for field, kind in schema.get("properties", {}).items()
    ]
    about = f'<p class="dim">{escape(schema.get("description", ""))}</p>'
    body = f'<div class="wide"><table>{"".join(rows)}</table></div>' if rows else f"<p>{_kind(schema)}</p>"
    return f'<section id="{escape(name)}" tabindex="0"><h3>{escape(name)}</h3>\n{about}\n{body}</section>\n'


def _kind(schema: dict[str, Any] | bool) -> str:  # noqa: FBT001 - JSON Schema writes `true` for anything
    """Describe a schema in a few words; a reference becomes a link on the page."""
    if isinstance(schema, bool):
        return "any" if schema else "nothing"
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
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
