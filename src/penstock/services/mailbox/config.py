"""The `[mailbox]` table and the options read from it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config import (
    Apply,
    Key,
    KeyRule,
    Kind,
    channel_key,
    listener_settings,
    oap_key,
    service_drain,
    service_table,
)
from penstock.kernel.backoff import FullJitter
from penstock.services.mailbox.ledger import MailboxBounds
from penstock.services.mailbox.shards.shard import ShardRules

if TYPE_CHECKING:
    from penstock.config import ListenerSettings, Settings

__all__ = ["TABLE", "MailboxBounds", "MailboxOptions", "ShardRules"]

PORT_OFFSET = 5
SHARDS_MAX = 64


def _count(name: str, default: int, text: str, *, high: int = 1 << 40, unit: str = "messages") -> Key:
    return Key(name, Kind.INT, default, low=1, high=high, unit=unit, apply=Apply.RESTART, help=text)


_TABLE = service_table(
    "mailbox",
    port_offset=PORT_OFFSET,
    keys=(
        oap_key(),
        Key(
            "engine",
            Kind.CHOICE,
            "sqlite",
            choices=("sqlite", "memory"),
            apply=Apply.RESTART,
            help="Where messages are kept. `memory` forgets them with the process; `--amnesia` uses it.",
        ),
        Key(
            "durability",
            Kind.CHOICE,
            "fsync",
            choices=("fsync", "os"),
            apply=Apply.RESTART,
            help="`fsync`: a 2xx means synced. `os`: a crash of the machine may lose the last moments.",
        ),
        Key(
            "ready_shards",
            Kind.INT,
            8,
            low=1,
            high=SHARDS_MAX,
            unit="shards",
            help="Into how many shards the slots are cut. Changing it drains and rebinds; nothing is lost.",
        ),
        _count("shard_capacity", 4096, "Capacity of each `work` channel. Full: 429 `busy`.", high=1 << 20, unit="jobs"),
        _count("global_inflight", 8192, "Messages leased at once. Full: recv answers empty with `X-Inflight-Full: 1`."),
        Key(
            "visibility_ms_min",
            Kind.INT,
            250,
            low=250,
            high=43_200_000,
            unit="ms",
            apply=Apply.RESTART,
            help="The shortest lease anybody may ask for.",
        ),
        Key(
            "default_visibility",
            Kind.DURATION,
            "5s",
            low="250ms",
            high="12h",
            help="How long a lease lasts when recv does not say.",
        ),
        _count("max_attempts", 5, "Deliveries before a message is dead-lettered.", high=1000, unit="attempts"),
        Key(
            "backoff_base",
            Kind.DURATION,
            "200ms",
            low="1ms",
            high="1h",
            help="A nacked message waits a random time: at first up to this, then each time up to twice as long.",
        ),
        Key(
            "backoff_max",
            Kind.DURATION,
            "60s",
            low="1ms",
            high="12h",
            help="The longest time a nacked message waits before it is delivered again.",
        ),
        Key(
            "t_replay",
            Kind.DURATION,
            "300s",
            low="1s",
            high="7d",
            apply=Apply.RESTART,
            help="How long an idem_key and a settled receipt are remembered.",
        ),
        _count("dedup_entries", 1_000_000, "Idem_keys remembered at once. Full: a send with one is 429.", unit="keys"),
        _count("ack_memory", 1_000_000, "Settled receipts remembered at once.", unit="receipts"),
        _count("backlog_messages_max", 1_000_000, "Messages stored, dead letters included. Full: 429 `busy`."),
        Key(
            "backlog_bytes_max",
            Kind.SIZE,
            "1GiB",
            low="1MiB",
            apply=Apply.RESTART,
            help="Payload bytes stored, dead letters included. Full: 429 `busy`.",
        ),
        Key(
            "max_payload_bytes",
            Kind.SIZE,
            "704KiB",
            low="1KiB",
            high="704KiB",
            apply=Apply.RESTART,
            help="The largest payload. A topic's own `max_payload` may allow 1 MiB by OAP, SQS and in process.",
        ),
        _count("window_messages", 65_536, "Messages waiting in RAM, without payloads; the others wait on the disk."),
        Key(
            "cache_bytes",
            Kind.SIZE,
            "32MiB",
            low="1MiB",
            apply=Apply.RESTART,
            help="Payloads kept in RAM for messages about to be delivered.",
        ),
        _count("waiters_max", 4096, "Receivers that wait in a long poll or stream. Full: 429.", unit="receivers"),
        Key(
            "lease_flush_ms",
            Kind.INT,
            10,
            low=1,
            high=1000,
            unit="ms",
            apply=Apply.RESTART,
            help="A lease is on the disk after this many milliseconds at the latest.",
        ),
        Key(
            "wal_bytes",
            Kind.SIZE,
            "8MiB",
            low="1MiB",
            apply=Apply.RESTART,
            help="The write-ahead log is checkpointed between commits at half of this size, and at the latest at it.",
        ),
        Key(
            "on_expiry",
            Kind.MAP,
            {},
            item=Kind.CHOICE,
            choices=("dlq", "drop"),
            apply=Apply.RESTART,
            help="What becomes of messages whose `ttl_ms` is over, by topic; `name*` is a prefix. "
            "Others are dead-lettered.",
        ),
        Key(
            "topics.auto",
            Kind.BOOL,
            True,
            apply=Apply.RESTART,
            help="Whether topics that have no settings may be used. Off: 404 `not_found` for those.",
        ),
        Key(
            "tenant_share",
            Kind.FLOAT,
            0.5,
            low=0.01,
            high=1.0,
            apply=Apply.RESTART,
            help="Part of the backlog and of the idem_keys that one tenant may take while there are others. "
            "Above it: 429 `busy`. 1: no limit.",
        ),
        _count("topics.settings_max", 10_000, "Topics with settings of their own. Full: 413.", unit="topics"),
        Key(
            "retention.ready",
            Kind.DURATION,
            "7d",
            low="1m",
            zero_off=True,
            apply=Apply.RESTART,
            help="How long a message may wait before it is dead-lettered as `ttl`.",
        ),
        Key(
            "retention.dlq",
            Kind.DURATION,
            "14d",
            low="1m",
            apply=Apply.RESTART,
            help="How long a dead letter is kept.",
        ),
        Key(
            "dlq_share",
            Kind.FLOAT,
            0.5,
            low=0.0,
            high=1.0,
            apply=Apply.RESTART,
            help="Part of the backlog limits that dead letters may take; above it the oldest go.",
        ),
        Key(
            "reprocess_rps",
            Kind.INT,
            1000,
            low=1,
            high=1_000_000,
            unit="messages/s",
            apply=Apply.RESTART,
            help="How fast dead letters are sent back.",
        ),
        Key(
            "cap_cache_ttl",
            Kind.DURATION,
            "30s",
            low="5s",
            high="120s",
            apply=Apply.RESTART,
            help="How often the cache of verified capabilities is trimmed.",
        ),
        channel_key("reproc", 256, "redrives on their way to the reprocessor. Full: 429 with `reproc_queue_full`."),
        service_drain("3s", "5s"),
    ),
    help="The durable queue.",
)
_RULES = (
    KeyRule(
        ("mailbox.backoff_max", "mailbox.backoff_base"),
        lambda longest, first: longest >= first,
        "must not be shorter than mailbox.backoff_base",
    ),
    KeyRule(
        ("mailbox.default_visibility", "mailbox.visibility_ms_min"),
        lambda usual_s, least_ms: round(usual_s * 1000) >= least_ms,
        "must not be shorter than mailbox.visibility_ms_min",
    ),
    KeyRule(
        ("mailbox.t_replay", "mailbox.default_visibility"),
        lambda remembered_s, usual_s: remembered_s >= 2 * usual_s,
        "must be at least twice mailbox.default_visibility, or a late repeat of an ack is not known again",
    ),
)
TABLE = replace(_TABLE, rules=(*_TABLE.rules, *_RULES))


@dataclass(frozen=True, kw_only=True, slots=True)
class MailboxOptions:
    """What can be tuned."""

    listener: ListenerSettings | None = None
    engine: str = "sqlite"
    data_dir: Path | None = None
    fsync: bool = True
    wal_bytes: int = 8 << 20
    ready_shards: int = 8
    shard_capacity: int = 4096
    reproc_capacity: int = 256
    bounds: MailboxBounds = field(default_factory=MailboxBounds)
    rules: ShardRules = field(default_factory=ShardRules)
    default_visibility_ms: int = 5000
    t_replay_s: float = 300.0
    dedup_entries: int = 1_000_000
    ack_memory: int = 1_000_000
    payload_bytes_max: int = 704 << 10
    lease_flush_s: float = 0.010
    ready_retention_s: float = 7 * 86_400.0
    dlq_retention_s: float = 14 * 86_400.0
    # Where removals of dead letters are written down; None: in the log alone.
    audit_path: Path | None = None
    dlq_share: float = 0.5
    reprocess_rps: int = 1000
    cap_cache_ttl_s: float = 30.0
    drain_deadline_s: float = 3.0
    topics_auto: bool = True
    topic_settings_max: int = 10_000
    tenant_share: float = 0.5

    @property
    def requeue_capacity(self) -> int:
        """Return the capacity of `requeue`: min(512, a quarter of the work channel's)."""
        return max(1, min(512, self.shard_capacity // 4))

    @classmethod
    def from_settings(cls, settings: Settings, listener: ListenerSettings | None = None) -> MailboxOptions:
        """Read the `[mailbox]` table; the node may hand in listener settings it has fitted to the machine."""
        number, seconds, size = settings.integer, settings.seconds, settings.size
        amnesia = settings.flag("node.amnesia")
        directory = settings.path("node.data_dir")
        return cls(
            listener=listener or listener_settings(settings, "mailbox"),
            engine="memory" if amnesia else settings.text("mailbox.engine"),
            data_dir=None if amnesia or directory is None else directory / "mailbox",
            fsync=settings.text("mailbox.durability") == "fsync",
            wal_bytes=size("mailbox.wal_bytes"),
            ready_shards=number("mailbox.ready_shards"),
            shard_capacity=number("mailbox.shard_capacity"),
            reproc_capacity=number("mailbox.channels.reproc"),
            bounds=_bounds(settings),
            rules=ShardRules(
                max_attempts=number("mailbox.max_attempts"),
                backoff=FullJitter(seconds("mailbox.backoff_base"), cap_s=seconds("mailbox.backoff_max")),
                visibility_ms_min=number("mailbox.visibility_ms_min"),
                on_expiry=tuple(settings.mapping("mailbox.on_expiry").items()),
            ),
            default_visibility_ms=round(seconds("mailbox.default_visibility") * 1000),
            t_replay_s=seconds("mailbox.t_replay"),
            dedup_entries=number("mailbox.dedup_entries"),
            ack_memory=number("mailbox.ack_memory"),
            payload_bytes_max=size("mailbox.max_payload_bytes"),
            lease_flush_s=number("mailbox.lease_flush_ms") / 1000,
            ready_retention_s=seconds("mailbox.retention.ready"),
            dlq_retention_s=seconds("mailbox.retention.dlq"),
            audit_path=None if amnesia or directory is None else directory / "audit" / "mailbox.jsonl",
            dlq_share=settings.number("mailbox.dlq_share"),
            reprocess_rps=number("mailbox.reprocess_rps"),
            cap_cache_ttl_s=seconds("mailbox.cap_cache_ttl"),
            drain_deadline_s=seconds("mailbox.drain_deadline"),
            topics_auto=settings.flag("mailbox.topics.auto"),
            topic_settings_max=number("mailbox.topics.settings_max"),
            tenant_share=settings.number("mailbox.tenant_share"),
        )


def _bounds(settings: Settings) -> MailboxBounds:
    return MailboxBounds(
        backlog_messages=settings.integer("mailbox.backlog_messages_max"),
        backlog_bytes=settings.size("mailbox.backlog_bytes_max"),
        global_inflight=settings.integer("mailbox.global_inflight"),
        window_messages=settings.integer("mailbox.window_messages"),
        cache_bytes=settings.size("mailbox.cache_bytes"),
        waiters=settings.integer("mailbox.waiters_max"),
    )
