"""The signatures of the SDK as Markdown, for `docs/_generated/sdk.md`: what a reader without the site can look up."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from typing import Any, Final, get_args, get_type_hints

import msgspec

from penstock import sdk
from penstock.contracts import mailbox as m
from penstock.kernel.errors import PenstockError
from penstock.sdk import Client, SdkOptions, connect, connect_sync
from penstock.sdk.consumer import Consumer
from penstock.sdk.delivery import Delivery
from penstock.sdk.dht import DhtClient
from penstock.sdk.interop import InteropClient
from penstock.sdk.mailbox import MailboxClient, new_message
from penstock.sdk.passport import PassportClient, narrow
from penstock.sdk.storage import StorageClient

_NOTE: Final = "<!-- Written by `scripts/docs` from the code; edits here are overwritten. -->"
_FUNCTIONS: Final = (
    ("connect", connect),
    ("connect_sync", connect_sync),
    ("new_message", new_message),
    ("narrow", narrow),
)
_CLIENTS: Final = (
    ("client", Client),
    ("client.mailbox", MailboxClient),
    ("consumer", Consumer),
    ("delivery", Delivery),
    ("client.passport", PassportClient),
    ("client.storage", StorageClient),
    ("client.dht", DhtClient),
    ("client.interop", InteropClient),
)
# What a program makes itself; what comes back is found by the signatures.
_GIVEN: Final = (SdkOptions, m.TopicSettings, m.DedupSettings)
# What the parts of the SDK say to each other.
_INNER: Final = frozenset(
    {"Consumer.check_stopped", "Consumer.failed", "Delivery.lapsed", "Delivery.lose", "Delivery.on_end"}
)
_PREFIX: Final = re.compile(r"\bm\.|\bd\.|\bi\.|\bp\.")
_ANNOTATED: Final = re.compile(r"Annotated\[(\w+), Meta\([^)]*\)\]")
_LINE_MAX: Final = 100
_PLAIN: Final = (str, int, float, tuple, type(None))


def signatures_page() -> str:
    """Write down every public function, method and field of the SDK with its signature."""
    text = (
        "Every call is awaited, but `connect`, `new_message`, `narrow` and `consume`; the blocking client of\n"
        "`connect_sync` has the same calls without `await`. [The SDK's page](../sdk.md) explains how they fit together."
    )
    parts = [_section("Functions", [_entry(call, name) for name, call in _FUNCTIONS])]
    parts += [_section(f"{name}: {kind.__name__}", _methods(kind, name)) for name, kind in _CLIENTS]
    parts += [_section(kind.__name__, [_fields(kind)]) for kind in (*_GIVEN, *_values())]
    parts.append(_section("Errors", [_errors()]))
    return f"{_NOTE}\n# Signatures of the SDK\n\n{text}\n\n" + "\n\n".join(parts) + "\n"


def _section(title: str, entries: list[str]) -> str:
    return f"## {title}\n\n" + "\n\n".join(entries)


def _methods(kind: type, name: str) -> list[str]:
    entries = [_entry(member, f"{name}.{each}") for each, member in _calls(kind)]
    read = [_property(each, member) for each, member in vars(kind).items() if isinstance(member, property)]
    return [*entries, "| read | type | |\n|---|---|---|\n" + "\n".join(read)] if read else entries


def _property(name: str, member: property) -> str:
    answer = _bare_type(_PREFIX.sub("", str(inspect.signature(member.fget).return_annotation))) if member.fget else ""
    return f"| `{name}` | `{answer}` | {inspect.getdoc(member) or ''} |"


def _errors() -> str:
    """List every error that a program may catch: what it is a kind of, its code and status, and what it says."""
    kinds = [found for name in sdk.__all__ if isinstance(found := getattr(sdk, name), type)]
    rows = [_error_row(kind) for kind in kinds if issubclass(kind, Exception)]
    head = "All are in `penstock.client`; all but `Reject`, which a handler raises, are kinds of `PenstockError`."
    return f"{head}\n\n| error | a kind of | code | status | says |\n|---|---|---|---|---|\n" + "\n".join(rows)


def _error_row(kind: type[Exception]) -> str:
    said = (inspect.getdoc(kind) or "").partition("\n")[0]
    if not issubclass(kind, PenstockError):
        return f"| `{kind.__name__}` | `{kind.__base__.__name__ if kind.__base__ else ''}` | | | {said} |"
    base = kind.__base__.__name__ if kind.__base__ else ""
    return f"| `{kind.__name__}` | `{base}` | `{kind.code}` | {kind.status} | {said} |"


def _calls(kind: type) -> Iterator[tuple[str, Any]]:
    for name, member in vars(kind).items():
        if not name.startswith("_") and f"{kind.__name__}.{name}" not in _INNER and inspect.isfunction(_bare(member)):
            yield name, member


def _values() -> tuple[type, ...]:
    """List the values that come back from any call, and what is in them."""
    found: dict[type, None] = {}
    calls = [*(call for _, call in _FUNCTIONS), *(_bare(call) for _, kind in _CLIENTS for _, call in _calls(kind))]
    todo = [get_type_hints(call).get("return") for call in reversed(calls)]
    while todo:
        kind = todo.pop()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in found and kind not in _GIVEN:
            found[kind] = None
            todo += reversed(get_type_hints(kind).values())
        todo += reversed(get_args(kind))
    return tuple(found)


def _bare(member: Any) -> Any:  # noqa: ANN401 - whatever a class holds
    return (
        inspect.unwrap(getattr(member, "__func__", member)) if callable(getattr(member, "__func__", member)) else None
    )


def _entry(member: Any, name: str) -> str:  # noqa: ANN401 - whatever a class holds
    call = _bare(member)
    said = (inspect.getdoc(call) or "").partition("\n\n")[0].replace("\n", " ")
    return f"```python\n{_signature(call, name)}\n```\n\n{said}".rstrip()


def _signature(call: Any, name: str) -> str:  # noqa: ANN401 - a function of any shape
    signature = inspect.signature(call)
    given = [_PREFIX.sub("", str(each)) for each in _shown(signature)]
    answer = _PREFIX.sub("", str(signature.return_annotation))
    line = f"{name}({', '.join(given)}) -> {answer}"
    if len(line) <= _LINE_MAX:
        return line
    return f"{name}(\n" + "".join(f"    {each},\n" for each in given) + f") -> {answer}"


def _shown(signature: inspect.Signature) -> list[str]:
    """List the parameters without `self`, with the star before those that are given by name."""
    shown, starred = [], False
    for each in signature.parameters.values():
        if each.name in {"self", "cls"}:
            continue
        if each.kind is inspect.Parameter.VAR_POSITIONAL:
            starred = True
        if each.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        shown.append(_parameter(each))
    return shown


def _parameter(each: inspect.Parameter) -> str:
    """Write a parameter down; a default that is no plain value is left out, because it may be this machine's."""
    star = "*" if each.kind is inspect.Parameter.VAR_POSITIONAL else ""
    said = f"{star}{each.name}: {each.annotation}"
    return said if each.default is inspect.Parameter.empty else f"{said} = {_default(each.default)}"


def _default(value: object) -> str:
    if not isinstance(value, _PLAIN):
        return "..."
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _fields(kind: type) -> str:
    """List the fields of a value; with their defaults where a program makes it."""
    head = (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " ")
    given = kind in _GIVEN
    names = "| field | type | default |\n|---|---|---|" if given else "| field | type |\n|---|---|"
    rows = []
    for name, said in kind.__annotations__.items():
        row = f"| `{name}` | `{_PREFIX.sub('', _bare_type(str(said)))}` |".replace(" | None", " or None")
        rows.append(f"{row} {_field_default(kind, name)} |" if given else row)
    return f"{head}\n\n{names}\n" + "\n".join(rows)


def _bare_type(said: str) -> str:
    """Leave out the bounds that are written around a type; a bar would end the cell of the table."""
    return _ANNOTATED.sub(r"\1", said).replace(" | UnsetType", " or unset").replace(" | None", " or None")


def _field_default(kind: type, name: str) -> str:
    if dataclasses.is_dataclass(kind):
        value = next(field.default for field in dataclasses.fields(kind) if field.name == name)
    else:
        value = next(field.default for field in msgspec.structs.fields(kind) if field.name == name)
    if value is dataclasses.MISSING or value is msgspec.NODEFAULT:
        return ""
    return f"`{_default(value)}`"
