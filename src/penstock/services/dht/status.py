"""What the admin routes and the operator's page show of a node's table and records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.services.dht.core.diversity import entropy_bits
from penstock.services.dht.core.ids import to_text

if TYPE_CHECKING:
    from penstock.services.dht.api import DhtApi
    from penstock.services.dht.core.bucket import BucketView

SHOWN_MAX = 1000


class ContactRow(msgspec.Struct, frozen=True):
    """One contact of a bucket."""

    node_id: str
    host: str
    port: int
    verified_s_ago: float
    rtt_ms: float | None
    failing: bool


class BucketRow(msgspec.Struct, frozen=True):
    """One bucket that holds anybody."""

    bucket: int
    size: int
    spares: int
    groups: int
    entropy_bits: float
    last_lookup_s_ago: float
    contacts: tuple[ContactRow, ...]


class TableShown(msgspec.Struct, frozen=True):
    """The routing table."""

    node_id: str
    contacts: int
    buckets: tuple[BucketRow, ...]


class RecordRow(msgspec.Struct, frozen=True):
    """One record that is kept for others."""

    key: str
    publisher: str
    seq: int
    expires_at: int
    withdrawn: bool


class OwnRow(msgspec.Struct, frozen=True):
    """One record of the node's own."""

    key: str
    addrs: tuple[str, ...]
    seq: int
    ttl_s: int
    published_at: int
    withdrawn: bool
    keepers: int


class RecordsShown(msgspec.Struct, frozen=True):
    """Records kept and own, at most a thousand of each, and how many there are."""

    kept: tuple[RecordRow, ...]
    own: tuple[OwnRow, ...]
    kept_count: int
    kept_bytes: int
    own_count: int


def table_shown(api: DhtApi, touched_at: list[float]) -> TableShown:
    """Read the table."""
    state = api.state
    now = state.monotonic()
    rows = [
        _bucket(api, index, view, now - touched_at[index])
        for index, view in enumerate(state.table.views)
        if view.contacts or view.spares
    ]
    return TableShown(to_text(state.own), len(state.table), tuple(rows))


def _bucket(api: DhtApi, index: int, view: BucketView, idle_s: float) -> BucketRow:
    state, now = api.state, api.state.monotonic()
    groups: dict[str, int] = {}
    rows = []
    for contact, at in zip(view.contacts, view.verified_at, strict=True):
        if contact.group is not None:
            groups[contact.group.group] = groups.get(contact.group.group, 0) + 1
        srtt = state.book.srtt_s(contact.id)
        rtt_ms = None if srtt is None else round(srtt * 1000, 2)
        failing = contact.id in state.book.failing
        rows.append(ContactRow(to_text(contact.id), contact.host, contact.port, round(now - at, 1), rtt_ms, failing))
    entropy = round(entropy_bits(groups), 2)
    return BucketRow(index, len(rows), view.spares, len(groups), entropy, round(idle_s, 1), tuple(rows))


def records_shown(api: DhtApi) -> RecordsShown:
    """Read the records."""
    book, own = api.keeper.book, api.republisher.own
    kept_rows: list[RecordRow] = []
    for record in book.records():
        if len(kept_rows) >= SHOWN_MAX:
            break
        kept_rows.append(
            RecordRow(to_text(record.key), to_text(record.publisher), record.seq, record.expires_ms, record.withdrawn)
        )
    own_rows = [
        OwnRow(
            to_text(each.key), each.addrs, each.seq, each.ttl_s, each.published_ms, each.withdrawn, len(each.keepers)
        )
        for each in list(own.values())[:SHOWN_MAX]
    ]
    return RecordsShown(tuple(kept_rows), tuple(own_rows), len(book), book.size_bytes, len(own))
