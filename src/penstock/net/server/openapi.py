"""OpenAPI 3.1 from the routes themselves: the structs that decode a request are the ones that describe it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from penstock.kernel.errors import BY_CODE
from penstock.net.server.route import Route

Schema = dict[str, Any]

_PARAMETER: Final = re.compile(r"\{([^}*]+)(\*?)\}")
# What no segment of a path may hold: the reader of requests refuses it wherever it stands.
_SEGMENT: Final = r"^[^\\\u0000]+$"
_RETRY_STATUSES: Final = frozenset((429, 503))
_PROBLEM: Final = "Problem"
_SECURITY: Final = "capability"


def openapi(service: str, version: str, routes: Iterable[Route]) -> Schema:
    """Describe a service. Two routes that OpenAPI could not tell apart are a bug and raise ValueError."""
    routes = tuple(routes)
    shapes, components = _shapes(routes)
    paths: dict[str, Schema] = {}
    for route, name in zip(routes, _operation_ids(routes), strict=True):
        _add(paths, route, {"operationId": name, **_operation(route, shapes)})
    _check_templates(paths)
    return {
        "openapi": "3.1.0",
        "info": {"title": service, "version": version},
        "paths": paths,
        "components": {
            "schemas": {**components, _PROBLEM: _problem_schema()},
            "headers": {"X-Corr-ID": _CORR_ID, "Retry-After": _RETRY_AFTER},
            "securitySchemes": {_SECURITY: {"type": "http", "scheme": "bearer", "bearerFormat": "psp1"}},
        },
    }


# --- shapes


def _shapes(routes: tuple[Route, ...]) -> tuple[dict[int, Schema], dict[str, Schema]]:
    """Return the schema of every body and answer by the identity of its type, and the components they refer to."""
    types: dict[int, Any] = {
        id(kind): kind
        for route in routes
        for kind in (*_forms(route), route.answer, route.answer_many)
        if kind is not None
    }
    schemas, components = msgspec.json.schema_components(types.values(), ref_template="#/components/schemas/{name}")
    if _PROBLEM in components:
        message = f"{_PROBLEM} is the name of the error body; call the struct something else"
        raise ValueError(message)
    return dict(zip(types, schemas, strict=True)), components


def _problem_schema() -> Schema:
    """Describe the one error body: what each problem says, and the facts that some bring; a code may bring others."""
    text: Schema = {"type": "string"}
    members: dict[str, Schema] = {
        "type": {"type": "string", "format": "uri"},
        "title": text,
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": text,
        "code": {"type": "string", "enum": sorted(BY_CODE)},
        "corr_id": {"type": "string", "minLength": 1, "maxLength": 64},
        "retryable": {"type": "boolean"},
    }
    retry_after: Schema = {"type": "integer", "minimum": 1, "description": "Seconds, on every 429 and 503."}
    return {
        "title": _PROBLEM,
        "description": "RFC 9457 problem details.",
        "type": "object",
        "properties": {**members, "retry_after": retry_after, **_FACTS},
        "required": list(members),
    }


_FACTS: Final[dict[str, Schema]] = {
    "hint": {"type": "string", "description": "The next step."},
    "docs": {"type": "string", "description": "A page of the documentation that tells more."},
    "reason": {"type": "string", "description": "Which condition of this code it is, for programs."},
    "field": {"type": "string", "description": "The field of the request that is wrong."},
    "limit": {"type": "string", "description": "The name of the limit that was passed."},
    "limit_value": {"type": "number", "description": "That limit."},
    "actual": {"type": "number", "description": "What the request had instead."},
    "setting": {"type": "string", "description": "The setting of the node that sets the limit or the rule."},
    "needed": {"type": "string", "description": "On 403: the caveat that a token must have."},
    "has": {"type": "string", "description": "On 403: what the token has."},
    "allow": {"type": "array", "items": {"type": "string"}, "description": "On 405: the methods that it takes."},
}
_CORR_ID: Final[Schema] = {
    "description": "The caller's correlation id, or a new one.",
    "required": True,
    "schema": {"type": "string", "minLength": 1, "maxLength": 64},
}
_RETRY_AFTER: Final[Schema] = {
    "description": "Seconds to wait before trying again.",
    "required": True,
    "schema": {"type": "integer", "minimum": 1},
}


# --- operations


def _operation(route: Route, shapes: dict[int, Schema]) -> Schema:
    operation: Schema = {
        "summary": route.summary,
        "security": [] if route.open else [{_SECURITY: []}],
        "responses": _responses(route, shapes),
    }
    if parameters := [*_parameters(route), *_query(route)]:
        operation["parameters"] = parameters
    if body := _request_body(route, shapes):
        operation["requestBody"] = body
    if route.op:
        operation["x-penstock-op"] = route.op
    return operation


def _operation_ids(routes: Iterable[Route]) -> list[str]:
    """Name each operation by method and path, with a number where two would be called alike."""
    used: dict[str, int] = {}
    names = []
    for route in routes:
        words = re.findall(r"[A-Za-z0-9]+", _PARAMETER.sub(r"by_\1", route.path))
        name = "_".join((route.method.lower(), *words))
        used[name] = used.get(name, 0) + 1
        names.append(name if used[name] == 1 else f"{name}_{used[name]}")
    return names


def _parameters(route: Route) -> list[Schema]:
    return [_parameter(name, route.params.get(name), rest=bool(star)) for name, star in _PARAMETER.findall(route.path)]


def _parameter(name: str, kind: object, *, rest: bool) -> Schema:
    parameter: Schema = {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
    if rest:
        return {**parameter, "description": "The rest of the path, its slashes included."}
    if kind is not None:
        return {**parameter, "schema": msgspec.json.schema(kind)}
    return {**parameter, "schema": {"type": "string", "minLength": 1, "pattern": _SEGMENT}}


def _query(route: Route) -> list[Schema]:
    """Describe the fields of the query; those that stand in the path are not asked for twice."""
    if route.query is None:
        return []
    in_path = {name for name, _ in _PARAMETER.findall(route.path)}
    return [
        {"name": each.encode_name, "in": "query", "required": each.required, "schema": _without_null(each.type)}
        for each in msgspec.structs.fields(route.query)
        if each.encode_name not in in_path
    ]


def _without_null(kind: object) -> Schema:
    """Return the schema of a field; one that may be null is left out of a query instead."""
    schema: Schema = msgspec.json.schema(kind)
    kinds = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    return kinds[0] if len(kinds) == 1 else schema


def _request_body(route: Route, shapes: dict[int, Schema]) -> Schema | None:
    if route.stream_body or route.octets:
        # No bytes at all are bytes too.
        return {"required": False, "content": {"application/octet-stream": {}}}
    if route.body is None:
        return None
    forms = [shapes[id(form)] for form in _forms(route)]
    schema = forms[0] if len(forms) == 1 else {"oneOf": forms}
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _forms(route: Route) -> tuple[type, ...]:
    """List the forms of a route's body as they are described."""
    first = route.body_forms or ((route.body,) if route.body is not None else ())
    return (*first, route.body_too) if route.body_too is not None else first


# --- answers


def _responses(route: Route, shapes: dict[int, Schema]) -> dict[str, Schema]:
    """List what comes back: success, the statuses this route names, and the problem that any route may meet."""
    responses: dict[str, Schema] = {"2XX": _success(route, shapes)}
    for status, codes in sorted(_codes_by_status(route).items()):
        responses[str(status)] = _refusal(status, codes)
    responses["default"] = {
        "description": "Any other problem: framing, limits, overload, drain, a bug.",
        "headers": _headers(),
        "content": _problem_content(),
    }
    return responses


def _success(route: Route, shapes: dict[int, Schema]) -> Schema:
    if route.empty:
        return {"description": route.summary or "Done.", "headers": _headers()}
    kinds = [shapes[id(kind)] for kind in (route.answer, route.answer_many) if kind is not None]
    schema = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    content: Schema = {"application/json": {"schema": schema}} if kinds else {"*/*": {}}
    return {"description": route.summary or "Done.", "headers": _headers(), "content": content}


def _codes_by_status(route: Route) -> dict[int, list[str]]:
    implied = ["malformed", "over_limit"] if route.body is not None or route.stream_body else []
    implied += [] if route.open else ["unauthenticated", "expired", "forbidden"]
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys((*implied, *route.errors)):
        by_status.setdefault(_status_of(code, route), []).append(code)
    return by_status


def _status_of(code: str, route: Route) -> int:
    if code not in BY_CODE:
        message = f"{route.method} {route.path} names {code!r}, which is no problem code"
        raise ValueError(message)
    return BY_CODE[code].status


def _refusal(status: int, codes: list[str]) -> Schema:
    lines = "\n".join(f"- `{code}`: {BY_CODE[code].title()}" for code in codes)
    extra = ("Retry-After",) if status in _RETRY_STATUSES else ()
    return {
        "description": lines,
        "headers": _headers(*extra),
        "content": _problem_content(),
    }


def _headers(*extra: str) -> Schema:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in ("X-Corr-ID", *extra)}


def _problem_content() -> Schema:
    return {"application/problem+json": {"schema": {"$ref": f"#/components/schemas/{_PROBLEM}"}}}


# --- paths


def _add(paths: dict[str, Schema], route: Route, operation: Schema) -> None:
    item = paths.setdefault(_PARAMETER.sub(r"{\1}", route.path), {})
    method = route.method.lower()
    if method in item:
        message = f"{route.method} {route.path} is described twice"
        raise ValueError(message)
    item[method] = operation


def _check_templates(paths: dict[str, Schema]) -> None:
    """Refuse paths that differ in nothing but the names of their parameters."""
    known: dict[str, str] = {}
    for path in paths:
        other = known.setdefault(_PARAMETER.sub("{}", path), path)
        if other != path:
            message = f"{path} and {other} are one path to OpenAPI; name their parameters alike"
            raise ValueError(message)
