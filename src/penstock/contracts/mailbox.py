"""svc-mailbox: durable, at-least-once, bounded. Values and the Protocol; the rules are in `mailbox_rules`. Pure."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Protocol, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.contracts.call import NOBODY, Call

BATCH_MAX: Final = 256
TOPICS_MAX: Final = 1000
HOURS_12_MS: Final = 12 * 60 * 60 * 1000
# Every JSON reader knows whole numbers up to here, and so far in the future still is a time.
_WHOLE_MAX: Final = (1 << 53) - 1

# The lookahead is the end of the text in every dialect; `$` would let a trailing newline through.
Topic = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9._:/-]+(?![\s\S])")]
TopicPrefix = Annotated[str, Meta(max_length=200, pattern=r"^[A-Za-z0-9._:/-]*(?![\s\S])")]
Key = Annotated[str, Meta(min_length=1, max_length=256)]
Hash = Annotated[str, Meta(min_length=67, max_length=67, pattern="^b3:[0-9a-f]{64}$")]
MsgId = Annotated[str, Meta(min_length=1, max_length=64)]
Receipt = Annotated[str, Meta(min_length=1, max_length=256)]
DelayMs = Annotated[int, Meta(ge=0, le=HOURS_12_MS)]
VisibilityMs = Annotated[int, Meta(ge=250, le=HOURS_12_MS)]
TtlMs = Annotated[int, Meta(ge=1, le=_WHOLE_MAX)]
Positive = Annotated[int, Meta(ge=1)]
State = Literal["ready", "inflight", "delayed", "dlq"]


# Bytes are base64 in JSON and raw in msgpack; the name is that of the JSON route.
class Send(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename={"payload": "payload_b64"}
):
    """One message to store. With `idem_key` a repeat is one message."""

    topic: Topic
    payload: bytes
    payload_hash: Hash | None = None
    idem_key: Key | None = None
    attrs: dict[str, str] = {}
    key: Key | None = None
    delay_ms: DelayMs = 0
    ttl_ms: TtlMs | None = None

    def __post_init__(self) -> None:
        """Refuse a delay on a keyed message: it would hold back its key. msgspec makes this a validation error."""
        if self.key is not None and self.delay_ms:
            raise ValueError("delay_ms cannot be given together with key")


class Sent(msgspec.Struct, frozen=True):
    """The message is stored as durably as the engine promises."""

    msg_id: str
    duplicate: bool
    shard: int


class SendBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Up to 256 messages, each on its own."""

    messages: tuple[Send, ...]


class SendResult(msgspec.Struct, frozen=True):
    """`{msg_id, duplicate, shard}` of one message of a batch, or `{code, detail}`."""

    msg_id: str | UnsetType = UNSET
    duplicate: bool | UnsetType = UNSET
    shard: int | UnsetType = UNSET
    code: str | UnsetType = UNSET
    detail: str | UnsetType = UNSET


class SentBatch(msgspec.Struct, frozen=True):
    """The results, in the order of the messages."""

    results: tuple[SendResult, ...]


class Recv(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Ask for messages; each is leased for `visibility_ms`."""

    topic: Topic
    max_messages: Annotated[int, Meta(ge=1, le=BATCH_MAX)] = 1
    visibility_ms: VisibilityMs = 5000
    wait_ms: Annotated[int, Meta(ge=0, le=20_000)] = 0
    max_bytes: Positive | None = None


class Envelope(msgspec.Struct, frozen=True, omit_defaults=True, rename={"payload": "payload_b64"}):
    """A leased message. `receipt` settles it until `visible_until`; times are Unix milliseconds."""

    msg_id: str
    receipt: str
    topic: str
    ts: int
    payload: bytes
    attrs: dict[str, str]
    corr_id: str
    shard: int
    attempt: int
    visible_until: int
    payload_hash: str
    hash_chain: str
    key: str | None = None
    idem_key: str | None = None
    redriven_from: str | None = None


class Received(msgspec.Struct, frozen=True):
    """The leased messages, possibly none; `inflight_full` says that none may be leased for now."""

    messages: tuple[Envelope, ...]
    inflight_full: bool = False


class Ack(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Done with this message."""

    msg_id: MsgId
    receipt: Receipt


class Nack(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Not done: again after `delay_ms`, or after full-jitter backoff."""

    msg_id: MsgId
    receipt: Receipt
    reason: Annotated[str, Meta(max_length=256)] | None = None
    delay_ms: DelayMs | None = None


class Extend(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Still working: the lease ends `visibility_ms` from now. The receipt stays the same."""

    msg_id: MsgId
    receipt: Receipt
    visibility_ms: VisibilityMs


class Acked(msgspec.Struct, frozen=True):
    """The message is done and will not be delivered again."""

    ok: bool = True


class Nacked(msgspec.Struct, frozen=True):
    """Given back, or dead-lettered."""

    attempt: int
    visible_in_ms: int
    dead_lettered: bool
    ok: bool = True


class Extended(msgspec.Struct, frozen=True):
    """The lease is longer."""

    receipt: str
    visible_until: int


class AckBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Up to 256 acks."""

    acks: tuple[Ack, ...]


class NackBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Up to 256 nacks."""

    nacks: tuple[Nack, ...]


class ExtendBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Up to 256 extensions."""

    extends: tuple[Extend, ...]


class SettleResult(msgspec.Struct, frozen=True):
    """`{ok: true, ...}` of one item of a batch, or `{code, detail}`."""

    ok: bool | UnsetType = UNSET
    attempt: int | UnsetType = UNSET
    visible_in_ms: int | UnsetType = UNSET
    dead_lettered: bool | UnsetType = UNSET
    receipt: str | UnsetType = UNSET
    visible_until: int | UnsetType = UNSET
    code: str | UnsetType = UNSET
    detail: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class SettledBatch(msgspec.Struct, frozen=True):
    """The results, in the order of the items."""

    results: tuple[SettleResult, ...]


class GetTopics(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Ask for a page of the topics that the capability covers, by name; the cursor is that of the page before."""

    limit: Annotated[int, Meta(ge=1, le=TOPICS_MAX)] = TOPICS_MAX
    cursor: Topic | None = None
    prefix: TopicPrefix = ""


class GetTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Ask for one topic."""

    topic: Topic


class TopicStats(msgspec.Struct, frozen=True):
    """Counts of one topic; rates are messages a second over the last minute."""

    topic: str
    ready: int
    inflight: int
    delayed: int
    dlq: int
    bytes: int
    oldest_age_s: float
    send_rate: float = 0.0
    recv_rate: float = 0.0
    ack_rate: float = 0.0


class TopicList(msgspec.Struct, frozen=True):
    """Topics by name. A page may be short and still have a cursor; without one it is the last."""

    topics: tuple[TopicStats, ...]
    cursor: str | None = None


class Peek(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Look without taking; `payload` asks for the bytes too."""

    topic: Topic
    state: State = "ready"
    limit: Annotated[int, Meta(ge=1, le=BATCH_MAX)] = 10
    payload: bool = False


class Peeked(msgspec.Struct, frozen=True, omit_defaults=True, rename={"payload": "payload_b64"}):
    """A message as it lies there; no receipt, because it is not leased."""

    msg_id: str
    topic: str
    ts: int
    attrs: dict[str, str]
    corr_id: str
    shard: int
    attempt: int
    payload_hash: str
    hash_chain: str
    size: int
    payload: bytes | None = None
    key: str | None = None
    idem_key: str | None = None
    visible_at: int | None = None
    redriven_from: str | None = None


class PeekedList(msgspec.Struct, frozen=True):
    """What was seen, oldest first."""

    messages: tuple[Peeked, ...]


class Purge(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Remove what waits or is leased of a topic; its dead letters stay."""

    topic: Topic


class Purged(msgspec.Struct, frozen=True):
    """How many were removed."""

    purged: int


class GetDlq(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Page through dead letters; the cursor is that of the page before."""

    topic: Topic | None = None
    reason: str | None = None
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=BATCH_MAX)] = 100


class Attempt(msgspec.Struct, frozen=True):
    """When and why one attempt ended."""

    at: int
    cause: str


class DeadLetter(msgspec.Struct, frozen=True):
    """A message that is not delivered any more, why, where it came from and what was tried."""

    msg_id: str
    topic: str
    reason: str
    attempts: int
    ts: int
    dead_at: int
    payload_hash: str
    history: tuple[Attempt, ...]
    key: str | None = None


class DlqPage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Dead letters, oldest first; no cursor on the last page."""

    entries: tuple[DeadLetter, ...]
    cursor: str | None = None


class Reprocess(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Send dead letters back to their origin, or `to` another topic."""

    topic: Topic
    limit: Annotated[int, Meta(ge=1, le=1_000_000)]
    reason: str | None = None
    dry_run: bool = False
    to: Topic | None = None


class Reprocessing(msgspec.Struct, frozen=True):
    """How many were taken on (or would be)."""

    accepted: int


Settlement: TypeAlias = Ack | Nack | Extend


class Mailbox(Protocol):
    """What svc-mailbox does for the others. Errors are those of the platform; the reasons are in mailbox_rules."""

    async def send(self, request: Send, call: Call = NOBODY) -> Sent:
        """Store a message; answers when it is as durable as the engine promises."""

    async def send_batch(self, request: SendBatch, call: Call = NOBODY) -> SentBatch:
        """Store many, each on its own."""

    async def recv(self, request: Recv, call: Call = NOBODY) -> Received:
        """Lease messages; waits up to `wait_ms` for the first."""

    async def ack(self, request: Ack, call: Call = NOBODY) -> Acked:
        """Settle; repeating it with its own receipt is fine. A stale receipt is a Conflict."""

    async def ack_batch(self, request: AckBatch, call: Call = NOBODY) -> SettledBatch:
        """Settle many, each on its own."""

    async def nack(self, request: Nack, call: Call = NOBODY) -> Nacked:
        """Give back; the last attempt's nack dead-letters."""

    async def nack_batch(self, request: NackBatch, call: Call = NOBODY) -> SettledBatch:
        """Give many back, each on its own."""

    async def extend(self, request: Extend, call: Call = NOBODY) -> Extended:
        """Lengthen a lease."""

    async def extend_batch(self, request: ExtendBatch, call: Call = NOBODY) -> SettledBatch:
        """Lengthen many, each on its own."""

    async def topics(self, request: GetTopics, call: Call = NOBODY) -> TopicList:
        """Count the topics that the call may see, a page at a time."""

    async def topic(self, request: GetTopic, call: Call = NOBODY) -> TopicStats:
        """Count one topic; NotFound."""

    async def peek(self, request: Peek, call: Call = NOBODY) -> PeekedList:
        """Look without taking."""

    async def purge(self, request: Purge, call: Call = NOBODY) -> Purged:
        """Remove what waits or is leased of a topic."""

    async def dlq(self, request: GetDlq, call: Call = NOBODY) -> DlqPage:
        """Page through dead letters."""

    async def reprocess(self, request: Reprocess, call: Call = NOBODY) -> Reprocessing:
        """Send dead letters back."""
