"""What `help()` and an editor show of the SDK: every parameter by its name, with its type and default."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import client as sdk
from penstock.client import sync

ASYNC = (sdk.MailboxClient, sdk.PassportClient, sdk.StorageClient, sdk.DhtClient, sdk.InteropClient)
BLOCKING = (sync.SyncMailbox, sync.SyncPassport, sync.SyncStorage, sync.SyncDht, sync.SyncInterop)
# A blocking handler cannot be interrupted, so these two lack `on_lost` and `drain_s`.
LESS = {("SyncMailbox", "consume"), ("SyncMailbox", "run")}
# They take and give pieces by plain iterators; `test_sync_complete` compares their names.
PIECES = {("SyncStorage", "put_stream"), ("SyncInterop", "put")}


def methods(kind: type) -> dict[str, Callable[..., Any]]:
    return {name: found for name, found in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


CALLS = [(kind, name) for kind in (*ASYNC, *BLOCKING) for name in methods(kind)]


def shown(kind: type, name: str) -> dict[str, tuple[Any, Any]]:
    """Return each parameter's type and default."""
    parameters = inspect.signature(methods(kind)[name]).parameters.values()
    return {one.name: (one.annotation, one.default) for one in parameters if one.name != "self"}


@pytest.mark.parametrize(("kind", "name"), CALLS, ids=[f"{kind.__name__}.{name}" for kind, name in CALLS])
def test_every_parameter_has_a_name_and_a_type(kind: type, name: str) -> None:
    signature = inspect.signature(methods(kind)[name])

    open_ended = {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    assert not [one for one in signature.parameters.values() if one.kind in open_ended]
    assert not [one for one in shown(kind, name).values() if one[0] is inspect.Parameter.empty]
    assert signature.return_annotation is not inspect.Signature.empty


@pytest.mark.parametrize(("kind", "twin"), list(zip(ASYNC, BLOCKING, strict=True)))
def test_the_blocking_twin_takes_the_same(kind: type, twin: type) -> None:
    assert methods(twin).keys() == methods(kind).keys()
    for name in methods(twin):
        if (twin.__name__, name) in PIECES:
            continue
        if (twin.__name__, name) in LESS:
            assert (
                shown(twin, name).items() <= (shown(kind, name) | {"handler": shown(twin, name).get("handler")}).items()
            )
        else:
            assert shown(twin, name) == shown(kind, name)


def test_a_misspelt_option_is_refused_by_its_name() -> None:
    with pytest.raises(TypeError, match="delay"):
        sdk.new_message("orders", "x", delay=5)  # type: ignore[call-arg]


DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", sdk.__all__)
def test_every_public_name_is_in_the_page_of_signatures(name: str) -> None:
    assert re.search(rf"\b{name}\b", (DOCS / "_generated" / "sdk.md").read_text())


@pytest.mark.parametrize("kind", ASYNC)
def test_the_sdks_page_names_every_method_and_the_reference_every_client(kind: type) -> None:
    page = (DOCS / "sdk.md").read_text()
    [row] = [line for line in page.splitlines() if line.startswith(f"| `{kind.__name__}` |")]

    assert [name for name in methods(kind) if f"`{name}`" not in row] == []
    assert f"{kind.__name__}\n" in (DOCS / "sdk-reference.md").read_text()


def test_every_error_is_shown_with_its_code_and_status() -> None:
    page = (DOCS / "_generated" / "sdk.md").read_text()

    assert "| `LeaseLost` | `Conflict` | `conflict` | 409 |" in page
    assert "| `Reject` | `Exception` | | |" in page
