"""What svc-interop adds to the operator's page: the webhook endpoints, and the inbox with the last deliveries."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, get_args

from penstock.admin.concern import PagePart
from penstock.admin.panel import ActionOutcome, Column, Panel, RowAction, Rows
from penstock.admin.readings import PerSecond, by_label
from penstock.contracts import interop as i
from penstock.contracts.call import Call

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.kernel.metrics import Metrics
    from penstock.services.interop.service import InteropService

_SHOWN = 100
_OUTCOMES = get_args(i.WebhookOutcome)
_ENDPOINT_COLUMNS = (
    Column("name", "endpoint"),
    Column("kind", "kind"),
    Column("topic", "topic", "topic"),
    Column("state", "state"),
    Column("accepted", "accepted", "count"),
    Column("duplicate", "duplicates", "count"),
    Column("handshake", "handshakes", "count"),
    Column("refused", "refused", "bad"),
    Column("failed", "failed", "bad"),
)
_INBOX_COLUMNS = (
    Column("id", "delivery"),
    Column("at", "arrived", "time"),
    Column("endpoint", "endpoint"),
    Column("outcome", "outcome"),
    Column("reason", "reason"),
    Column("type", "type"),
    Column("size", "size", "bytes"),
    Column("msg_id", "message", "message"),
    Column("corr_id", "corr_id", "corr_id"),
)
_EVENT_COLUMNS = (Column("what", "event"), Column("value", ""))


def interop_page(metrics: Metrics) -> PagePart:
    """Measure the webhooks a second by their outcome, for the chart above the panels."""
    rates = PerSecond()

    def read(now: float) -> dict[str, float]:
        counts: dict[str, float] = dict.fromkeys((f"webhooks.{each}" for each in _OUTCOMES), 0.0)
        family = next((each for each in metrics.families() if each.name == "webhook_verify_total"), None)
        for result, count in by_label(family, "result"):
            counts[f"webhooks.{result}"] += count
        return rates.rates(counts, now)

    return PagePart(readings=read)


def webhook_endpoints(service: InteropService, token: Callable[[], str]) -> Panel:
    """List the endpoints, those in trouble first; each can be paused and resumed."""

    def source() -> Rows:
        rows = [_endpoint(each) for each in service.api.shown_endpoints()]
        return sorted(rows, key=lambda row: row["state"] == "open")

    async def pause(name: str) -> ActionOutcome:
        await service.api.pause(i.PauseEndpoint(name), Call(token()))
        return ActionOutcome(f"{name} is paused: its webhooks get 503.")

    async def resume(name: str) -> ActionOutcome:
        await service.api.resume(i.ResumeEndpoint(name), Call(token()))
        return ActionOutcome(f"{name} takes webhooks again.")

    actions = (
        RowAction("pause", "Pause", pause, question="Refuse its webhooks until it is resumed?"),
        RowAction("resume", "Resume", resume),
    )
    empty = "No endpoint is configured: [interop.providers.NAME] with a secret makes one."
    return Panel(
        "webhook-endpoints",
        "Webhook endpoints",
        source,
        view="webhooks",
        columns=_ENDPOINT_COLUMNS,
        actions=actions,
        empty=empty,
    )


def _endpoint(shown: i.EndpointShown) -> dict[str, object]:
    state = "paused" if shown.paused else "attacked" if shown.attacked else "open"
    return {
        "name": shown.name,
        "kind": shown.kind,
        "topic": shown.topic,
        "state": state,
        "accepted": shown.accepted,
        "duplicate": shown.duplicate,
        "handshake": shown.handshake,
        "refused": shown.refused,
        "failed": shown.failed,
        "actions": ["resume"] if shown.paused else ["pause"],
    }


def webhook_inbox(service: InteropService, token: Callable[[], str]) -> Panel:
    """Show the last deliveries, newest first; an event can be looked at and sent again."""

    def source() -> Rows:
        return [_delivery(each) for each in service.records.inbox.newest(_SHOWN)]

    async def look(name: str) -> ActionOutcome:
        opened = await service.api.delivery(i.GetDelivery(name), Call(token()))
        return ActionOutcome(_said(opened.delivery), _event(opened.event or {}), _EVENT_COLUMNS)

    async def replay(name: str) -> ActionOutcome:
        done = await service.api.replay(i.ReplayDelivery(name), Call(token()))
        return ActionOutcome(f"Message {done.msg_id} in {done.topic} repeats {done.replayed_from}.")

    actions = (
        RowAction("look", "Look", look),
        RowAction("replay", "Send again", replay, question="Put this event into its topic once more?"),
    )
    return Panel(
        "webhook-inbox", "Webhook inbox", source, view="webhooks", columns=_INBOX_COLUMNS, actions=actions,
        rows_max=_SHOWN, empty="No webhook has arrived since the start.",
    )  # fmt: skip


def _delivery(shown: i.DeliveryShown) -> dict[str, object]:
    return {
        "id": shown.id,
        "at": shown.at,
        "endpoint": shown.endpoint,
        "outcome": shown.outcome,
        "reason": shown.reason,
        "type": shown.type,
        "size": shown.size,
        "topic": shown.topic,
        "msg_id": shown.msg_id,
        "corr_id": shown.corr_id,
        "actions": ["look", "replay"] if shown.can_replay else ["look"],
    }


def _said(shown: i.DeliveryShown) -> str:
    why = f" ({shown.reason})" if shown.reason else ""
    return f"{shown.endpoint}: {shown.outcome}{why}."


def _event(event: dict[str, Any]) -> Rows:
    return [
        {"what": name, "value": value if isinstance(value, str) else json.dumps(value)} for name, value in event.items()
    ]
