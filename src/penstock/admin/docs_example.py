"""An example value for a JSON schema: what somebody could send. Pure."""

from __future__ import annotations

from typing import Any, Final

_DEPTH_MAX: Final = 5
# A schema with no more than these allows anything.
_SAYS_NOTHING: Final = frozenset({"title", "description", "default"})
# What a reader recognises at once, by the name of the field.
_KNOWN: Final[dict[str, object]] = {
    "topic": "orders",
    "payload_b64": "aGVsbG8=",
    "payload": "hello",
    "msg_id": "01a1e558-52fd-7000-8000-00367a855112",
    "receipt": "r1.AAAAAA",
    "subject_ref": "worker",
    "audience": "svc-mailbox",
    "caveats": ["op=send,recv,ack", "topic=orders"],
    "reason": "ttl",
    "key": "customer-7",
    "idem_key": "order-1042",
    "token": "psp1_...",
    "corr_id": "01a1e553-80f6-73bd-a725-c91fe32623ee",
    "tenant": "shop",
    "limit": 100,
    "visibility_ms": 30_000,
}


# JSON Schema writes `true` for anything.
Shape = dict[str, Any] | bool


def example_of(schema: Shape, schemas: dict[str, Any], name: str = "", depth: int = 0) -> object:
    """Make one value that the schema allows; optional fields are left out, but for those that a reader expects."""
    if depth > _DEPTH_MAX:
        return {}
    if isinstance(schema, bool) or not schema.keys() - _SAYS_NOTHING:
        return _KNOWN.get(name, {})
    if "$ref" in schema:
        return example_of(schemas.get(schema["$ref"].rpartition("/")[2], {}), schemas, name, depth + 1)
    if name in _KNOWN and _fits(_KNOWN[name], schema):
        return _KNOWN[name]
    for words in ("anyOf", "oneOf"):
        if words in schema and "properties" not in schema:
            return example_of(_first(schema[words], schemas), schemas, name, depth + 1)
    if "enum" in schema:
        return schema["enum"][0]
    return _by_type(schema, schemas, depth)


def _first(choices: list[dict[str, Any]], schemas: dict[str, Any]) -> dict[str, Any]:
    """Choose the first form, and of forms with and without base64 the first that a person can read."""
    given = [each for each in choices if each.get("type") != "null"] or choices
    return next((each for each in given if not _is_encoded(each, schemas)), given[0])


def _is_encoded(schema: dict[str, Any], schemas: dict[str, Any]) -> bool:
    """Tell whether it is an object that needs a field in base64."""
    meant = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
    fields = meant.get("properties", {})
    return any(fields.get(name, {}).get("contentEncoding") == "base64" for name in meant.get("required", ()))


def _fits(value: object, schema: dict[str, Any]) -> bool:
    kind = {str: "string", int: "integer", list: "array"}[type(value)]
    shapes = [each for each in (schema, *schema.get("anyOf", ())) if each.get("type") == kind]
    return any(not isinstance(value, str) or len(value) >= each.get("minLength", 0) for each in shapes)


def _by_type(schema: dict[str, Any], schemas: dict[str, Any], depth: int) -> object:
    match schema.get("type"):
        case "object":
            return _object(schema, schemas, depth)
        case "array":
            items = schema.get("items") or (schema.get("prefixItems") or [{}])[0]
            return [example_of(items, schemas, "", depth + 1)]
        case "string":
            return "0" * schema["minLength"] if schema.get("minLength", 0) > len("text") else "text"
        case "integer" | "number":
            return schema.get("minimum", schema.get("exclusiveMinimum", 0))
        case "boolean":
            return False
        case _:
            return None


def _object(schema: dict[str, Any], schemas: dict[str, Any], depth: int) -> dict[str, object]:
    fields: dict[str, Any] = schema.get("properties", {})
    # Forms of one object say only which of its fields each needs.
    forms = [{**each, "properties": fields} for each in schema.get("oneOf", ())]
    needed = {*schema.get("required", ()), *(_first(forms, schemas).get("required", ()) if forms else ())}
    chosen = [field for field in fields if field in needed] or list(fields)[:1]
    return {field: example_of(fields[field], schemas, field, depth + 1) for field in chosen}
