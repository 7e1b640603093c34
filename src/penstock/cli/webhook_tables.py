"""Webhook endpoints and deliveries for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from penstock.cli.payloads import printable
from penstock.cli.tables import say, short_when, table_of, when

if TYPE_CHECKING:
    from penstock.contracts.interop import DeliveryOpened, DeliveryShown, EndpointShown


def endpoints(rows: Sequence[EndpointShown]) -> None:
    """Print a row for each endpoint."""
    columns = ("endpoint", "kind", "topic", "state", "accepted", "duplicates", "refused", "failed")
    cells = [
        (row.name, row.kind, row.topic, _state(row), row.accepted, row.duplicate, row.refused, row.failed)
        for row in rows
    ]
    table_of(columns, cells, "no endpoints: [interop.providers.NAME] with a secret makes one")


def deliveries(rows: Sequence[DeliveryShown]) -> None:
    """Print a row for each delivery."""
    columns = ("delivery", "arrived", "endpoint", "outcome", "type", "message")
    cells = [(row.id, short_when(row.at), row.endpoint, _outcome(row), printable(row.type), row.msg_id) for row in rows]
    table_of(columns, cells, "no deliveries since the start")


def delivery(opened: DeliveryOpened) -> None:
    """Print one delivery: its facts, then its event."""
    shown = opened.delivery
    facts = [shown.endpoint, _outcome(shown), when(shown.at), f"corr_id {printable(shown.corr_id)}"]
    facts += [f"message {shown.msg_id} in {shown.topic}"] if shown.msg_id else []
    say(Text.assemble((shown.id, "bold cyan"), ("  " + "  ".join(facts), "dim")))
    for name, value in (opened.event or {}).get("headers", {}).items():
        say(Text(f"{printable(name)}: {printable(value)}", "dim"))
    event = opened.event or {}
    body = event.get("body", event.get("body_b64", event.get("body_addr")))
    say(Text("(no event was kept)" if opened.event is None else printable(str(body))))


def _state(row: EndpointShown) -> str:
    return "paused" if row.paused else "attacked" if row.attacked else "open"


def _outcome(row: DeliveryShown) -> str:
    return f"{row.outcome} ({printable(row.reason)})" if row.reason else row.outcome
