"""What svc-dht adds to the operator's page: how it stands, its buckets, and its records with a lookup of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.admin.panel import ActionOutcome, Column, Panel, RowAction, Rows
from penstock.contracts import dht as d
from penstock.contracts.call import Call
from penstock.services.dht.core.ids import to_text
from penstock.services.dht.status import table_shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.services.dht.service import DhtService

_STATUS_COLUMNS = (
    Column("phase", "phase"),
    Column("why", "why"),
    Column("contacts", "contacts", "count"),
    Column("links", "connections", "count"),
    Column("nodes", "nodes in the network", "count"),
    Column("lookups", "lookups", "count"),
    Column("hops", "hops p99", "count"),
    Column("hedges", "hedges", "count"),
    Column("kept", "records kept", "count"),
    Column("own", "own records", "count"),
)
_BUCKET_COLUMNS = (
    Column("bucket", "bucket", "count"),
    Column("size", "contacts", "count"),
    Column("spares", "replacements", "count"),
    Column("groups", "networks", "count"),
    Column("failing", "failing", "bad"),
    Column("idle", "last lookup", "seconds"),
)
_OWN_COLUMNS = (Column("key", "key"), Column("state", "state"), Column("keepers", "kept by", "count"))


def dht_status(service: DhtService) -> Panel:
    """Show how the node stands in the network."""

    def source() -> Rows:
        if service.state.identity is None:
            return []
        status, figures = service.api.status_now(), service.workers.figures()
        row: dict[str, object] = {
            "phase": status.phase,
            "why": status.reason,
            "contacts": status.contacts,
            "links": status.links,
            "nodes": round(status.network_nodes),
            "kept": status.records_kept,
            "own": status.records_own,
            **figures,
        }
        return [row]

    return Panel(
        "dht-status", "Provider discovery", source, view="discovery", columns=_STATUS_COLUMNS, empty="Not started."
    )


def dht_buckets(service: DhtService) -> Panel:
    """Show the buckets that hold anybody."""

    def source() -> Rows:
        if service.state.identity is None:
            return []
        shown = table_shown(service.api, service.workers.touched_at)
        return [
            {
                "bucket": row.bucket,
                "size": row.size,
                "spares": row.spares,
                "groups": row.groups,
                "failing": sum(contact.failing for contact in row.contacts),
                "idle": row.last_lookup_s_ago,
            }
            for row in shown.buckets
        ]

    return Panel(
        "dht-buckets",
        "DHT buckets",
        source,
        view="discovery",
        columns=_BUCKET_COLUMNS,
        empty="No contacts.",
        rows_max=64,
    )


def dht_records(service: DhtService, token: Callable[[], str]) -> Panel:
    """List the node's own records; each can be looked up in the network."""

    async def find(key: str) -> ActionOutcome:
        found = await service.api.find(d.Find(key, limit=20), Call(token()))
        rows: list[dict[str, object]] = [
            {"node": each.node_id[:16], "addrs": " ".join(each.addrs)} for each in found.providers
        ]
        providers = "1 provider" if len(rows) == 1 else f"{len(rows)} providers"
        said = f"{providers}, {found.hops} hops, {found.messages} messages, {found.elapsed_ms:.1f} ms."
        return ActionOutcome(said, rows, (Column("node", "node"), Column("addrs", "addresses")))

    def source() -> Rows:
        own = list(service.republisher.own.values())
        return [
            {
                "key": to_text(each.key),
                "state": "withdrawn" if each.withdrawn else "published" if each.published_ms else "to be published",
                "keepers": len(each.keepers),
            }
            for each in own
        ]

    action = RowAction("find", "Look up", find)
    return Panel(
        "dht-records", "DHT records of this node", source, view="discovery", columns=_OWN_COLUMNS, actions=(action,),
        empty="This node announces nothing.", rows_max=50,
    )  # fmt: skip
