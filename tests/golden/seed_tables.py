"""The channel tables of the five services' founding documents, as data. Never edit a row to please the code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SeedChannel:
    """One row: `name` without `_tx`/`_rx`; `capacity` None where the document gives a formula or none."""

    service: str
    name: str
    kind: str  # mpsc, broadcast, watch, limiter, gauge
    capacity: int | None
    full: str  # refuse, drop_oldest, wait, lag, replace, none


SEED_CHANNELS = (
    SeedChannel("svc-interop", "events", "broadcast", 1024, "lag"),
    SeedChannel("svc-interop", "work", "mpsc", 512, "refuse"),
    SeedChannel("svc-interop", "shutdown", "watch", 1, "replace"),
    SeedChannel("svc-interop", "audit", "mpsc", 512, "drop_oldest"),
    SeedChannel("omnigate", "work", "mpsc", 512, "refuse"),
    SeedChannel("omnigate", "events", "broadcast", 1024, "lag"),
    SeedChannel("omnigate", "shutdown", "watch", 1, "replace"),
    SeedChannel("omnigate", "cfg", "watch", 1, "replace"),
    SeedChannel("svc-dht", "work", "mpsc", 512, "refuse"),
    SeedChannel("svc-dht", "route[b]", "mpsc", 1024, "wait"),
    SeedChannel("svc-dht", "events", "broadcast", 1024, "lag"),
    SeedChannel("svc-dht", "shutdown", "watch", 1, "replace"),
    SeedChannel("svc-dht", "rate_limiter", "limiter", None, "refuse"),
    SeedChannel("svc-mailbox", "work[shard]", "mpsc", 4096, "refuse"),
    SeedChannel("svc-mailbox", "requeue[shard]", "mpsc", 512, "refuse"),
    SeedChannel("svc-mailbox", "events", "broadcast", 1024, "lag"),
    SeedChannel("svc-mailbox", "shutdown", "watch", 1, "replace"),
    SeedChannel("svc-mailbox", "reproc", "mpsc", 256, "refuse"),
    SeedChannel("svc-passport", "issue", "mpsc", 512, "refuse"),
    SeedChannel("svc-passport", "revoke", "mpsc", 256, "refuse"),
    SeedChannel("svc-passport", "policy", "broadcast", 1024, "lag"),
    SeedChannel("svc-passport", "shutdown", "watch", 1, "replace"),
    SeedChannel("svc-passport", "ready_gauge", "gauge", None, "none"),
)

# Services that are not built yet: none.
OWED: tuple[str, ...] = ()

SEED_LOCKS: dict[str, tuple[str, str, str]] = {
    "svc-interop": ("policy_meta", "routing_table", "counters"),
    "omnigate": ("state_meta", "routing_table", "counters"),
    "svc-dht": ("state_meta", "routing_snapshot", "counters"),
    "svc-mailbox": ("state_meta", "routing_table", "counters"),
    "svc-passport": ("policy_meta", "issuer_epoch", "counters"),
}
