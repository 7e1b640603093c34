"""The signatures of the SDK as Markdown, for `docs/_generated/sdk.md`: what a reader without the site can look up."""

from __future__ import annotations

import inspect
import re
from typing import Any, Final

from penstock.contracts import mailbox as m
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
_VALUES: Final = (SdkOptions, m.Sent, m.Envelope, m.TopicStats, m.DeadLetter)
_PREFIX: Final = re.compile(r"\bm\.|\bd\.|\bi\.|\bp\.")
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
    parts += [_section(kind.__name__, [_fields(kind)]) for kind in _VALUES]
    return f"{_NOTE}\n# Signatures of the SDK\n\n{text}\n\n" + "\n\n".join(parts) + "\n"


def _section(title: str, entries: list[str]) -> str:
    return f"## {title}\n\n" + "\n\n".join(entries)


def _methods(kind: type, name: str) -> list[str]:
    found = [(each, member) for each, member in vars(kind).items() if not each.startswith("_")]
    return [_entry(member, f"{name}.{each}") for each, member in found if inspect.isfunction(_bare(member))]


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
        shown.append(str(_told(each)).replace("'", "").replace("Ellipsis", "..."))
    return shown


def _told(parameter: inspect.Parameter) -> inspect.Parameter:
    """Leave out a default that is no plain value: what stands there, such as the environment, is this machine's."""
    plain = parameter.default is inspect.Parameter.empty or isinstance(parameter.default, _PLAIN)
    return parameter if plain else parameter.replace(default=...)


def _fields(kind: type) -> str:
    rows = [f"| `{name}` | `{_PREFIX.sub('', str(said))}` |" for name, said in kind.__annotations__.items()]
    head = (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " ")
    return f"{head}\n\n| field | type |\n|---|---|\n" + "\n".join(row.replace(" | None", " or None") for row in rows)
