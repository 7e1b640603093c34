"""svc-mailbox: durable, at-least-once, bounded. Values and the Protocol; the rules are in `mailbox_rules`. Pure."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal, Protocol, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.contracts.call import NOBODY, Call
from penstock.contracts.handler_error import HandlerError
from penstock.kernel.errors import Malformed

BATCH_MAX: Final = 256
TOPICS_MAX: Final = 1000
VISIBILITY_MS_MIN: Final = 250
TAGS_MAX: Final = 64
TAGS_BYTES_MAX: Final = 64 << 10
HOURS_12_MS: Final = 12 * 60 * 60 * 1000
# Every JSON reader knows whole numbers up to here, and so far in the future still is a time.
_WHOLE_MAX: Final = (1 << 53) - 1

# The lookahead is the end of the text in every dialect; `$` would let a trailing newline through.
Topic = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9._:/-]+(?![\s\S])")]
# What messages are sent to: parts between single slashes, none of them empty, `.` or `..`, so that every topic can be
# written in a path. Topics of older nodes may have other names; those are received from and settled all the same.
_PART: Final = r"(?!\.{1,2}(?:/|(?![\s\S])))[A-Za-z0-9._:-]+"
NEW_TOPIC: Final = rf"^{_PART}(?:/{_PART})*(?![\s\S])"
NewTopic = Annotated[str, Meta(min_length=1, max_length=200, pattern=NEW_TOPIC)]
TopicPrefix = Annotated[str, Meta(max_length=200, pattern=r"^[A-Za-z0-9._:/-]*(?![\s\S])")]
Key = Annotated[str, Meta(min_length=1, max_length=256)]
Group = Annotated[str, Meta(min_length=1, max_length=128)]
Hash = Annotated[str, Meta(min_length=67, max_length=67, pattern="^b3:[0-9a-f]{64}$")]
MsgId = Annotated[str, Meta(min_length=1, max_length=64)]
Receipt = Annotated[str, Meta(min_length=1, max_length=256)]
DelayMs = Annotated[int, Meta(ge=0, le=HOURS_12_MS)]
# 0, which returns the message at once, or at least VISIBILITY_MS_MIN: `check_visibility_ms`.
VisibilityMs = Annotated[
    int,
    Meta(ge=0, le=HOURS_12_MS, extra_json_schema={"anyOf": [{"const": 0}, {"minimum": VISIBILITY_MS_MIN}]}),
]
TtlMs = Annotated[int, Meta(ge=1, le=_WHOLE_MAX)]
Positive = Annotated[int, Meta(ge=1)]
State = Literal["ready", "inflight", "delayed", "dlq"]


class WrongValue(Malformed, ValueError):
    """A value breaks a rule of the mailbox. As a ValueError it is a validation error where msgspec decodes."""


def check_visibility_ms(visibility_ms: int | None) -> None:
    """Refuse a lease that is shorter than the shortest, but not 0. msgspec makes this a validation error."""
    if visibility_ms and visibility_ms < VISIBILITY_MS_MIN:
        raise WrongValue(f"visibility_ms must be 0 or at least {VISIBILITY_MS_MIN}.")


def check_final(*, final: bool, uncounted: bool, delay_ms: int | None) -> None:
    """Refuse a nack that makes a dead letter and also says how the message comes again."""
    if final and (uncounted or delay_ms is not None):
        other = "uncounted" if uncounted else "delay_ms"
        raise ValueError(f"final makes a dead letter at once: it cannot be given together with {other}.")


class MessageOrigin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Which message this one was before it was moved, and when (Unix ms) that was sent."""

    msg_id: MsgId
    ts: Annotated[int, Meta(ge=0, le=_WHOLE_MAX)]


Origin = MessageOrigin
# Bytes are base64 in JSON and raw in msgpack; the names are those of the JSON route.
_BYTES: Final = {"payload": "payload_b64", "meta": "meta_b64"}


class Send(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename=_BYTES):
    """One message to store. With `idem_key` a repeat is one message."""

    topic: NewTopic
    payload: bytes
    payload_hash: Hash | None = None
    idem_key: Key | None = None
    attrs: dict[str, str] = {}
    key: Key | None = None
    # None: the topic's own, if it has one.
    delay_ms: DelayMs | None = None
    ttl_ms: TtlMs | None = None
    # Waiting groups take turns in a topic that is fair by group.
    group: Group | None = None
    # Opaque, carried along; counted with the payload.
    meta: bytes | None = None
    # Of a message that is moved: only a caller with op=admin, or one in this process, may say it.
    origin: MessageOrigin | None = None

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
    """Ask for messages; each is leased for `visibility_ms`: unset, the topic's own or else the service's."""

    topic: Topic
    max_messages: Annotated[int, Meta(ge=1, le=BATCH_MAX)] = 1
    visibility_ms: VisibilityMs | None = None
    wait_ms: Annotated[int, Meta(ge=0, le=20_000)] = 0
    max_bytes: Positive | None = None

    def __post_init__(self) -> None:
        """Refuse a lease that is too short."""
        check_visibility_ms(self.visibility_ms)


class Envelope(msgspec.Struct, frozen=True, omit_defaults=True, rename=_BYTES):
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
    # When it was delivered for the first time.
    first_at: int = 0
    group: str | None = None
    meta: bytes | None = None
    # The first send's msg_id and ts, where this message was moved or redriven; None: they are its own.
    origin_id: str | None = None
    origin_ts: int | None = None

    def text(self) -> str:
        """Return the payload as text; `ValueError` when it is not UTF-8."""
        return self.payload.decode()

    def json(self) -> Any:  # noqa: ANN401 - whatever was sent
        """Return the payload as the JSON value it is; `ValueError` when it is none."""
        return json_of(self.payload)


def json_of(payload: bytes) -> Any:  # noqa: ANN401 - whatever was sent
    """Read a payload as JSON."""
    try:
        return msgspec.json.decode(payload)
    except msgspec.DecodeError as exc:
        raise ValueError(f"The payload is no JSON: {exc}") from exc


class Received(msgspec.Struct, frozen=True):
    """The leased messages, possibly none; `inflight_full` says that none may be leased for now."""

    messages: tuple[Envelope, ...]
    inflight_full: bool = False


class Ack(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Done with this message."""

    msg_id: MsgId
    receipt: Receipt


class Nack(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Not done: again after `delay_ms`, or after full-jitter backoff; with `final` a dead letter at once."""

    msg_id: MsgId
    receipt: Receipt
    reason: Annotated[str, Meta(max_length=256)] | None = None
    delay_ms: DelayMs | None = None
    # What the handler raised; kept with the end of the attempt and shown in a dead letter's history.
    error: HandlerError | None = None
    # The attempt does not count: it was not the message's fault.
    uncounted: bool = False
    # It can never work: a dead letter now, whatever attempts are left.
    final: bool = False

    def __post_init__(self) -> None:
        """Refuse a message that is dead and comes again."""
        check_final(final=self.final, uncounted=self.uncounted, delay_ms=self.delay_ms)


class Extend(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Still working: the lease ends `visibility_ms` from now, with 0 at once. The receipt stays the same."""

    msg_id: MsgId
    receipt: Receipt
    visibility_ms: VisibilityMs

    def __post_init__(self) -> None:
        """Refuse a lease that is too short."""
        check_visibility_ms(self.visibility_ms)


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
    # It hands nothing out until somebody changes its settings.
    paused: bool = False


class TopicList(msgspec.Struct, frozen=True):
    """Topics by name. A page may be short and still have a cursor; without one it is the last."""

    topics: tuple[TopicStats, ...]
    cursor: str | None = None


class Peek(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Look without taking; `payload` asks for the bytes too. The cursor is that of the page before."""

    topic: Topic
    state: State = "ready"
    limit: Annotated[int, Meta(ge=1, le=BATCH_MAX)] = 10
    payload: bool = False
    cursor: str | None = None
    # This one alone, whatever its state.
    msg_id: MsgId | None = None

    def __post_init__(self) -> None:
        """Refuse a cursor beside a msg_id: one message has no pages. msgspec makes this a validation error."""
        if self.cursor is not None and self.msg_id is not None:
            raise ValueError("cursor and msg_id exclude each other: a cursor leads through a list.")


class Peeked(msgspec.Struct, frozen=True, omit_defaults=True, rename=_BYTES):
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
    # As in `Envelope`; `meta` only where the payload was asked for.
    group: str | None = None
    meta: bytes | None = None
    origin_id: str | None = None
    origin_ts: int | None = None
    first_at: int | None = None
    # A node of an earlier version does not say it.
    state: State | None = None


class PeekedList(msgspec.Struct, frozen=True):
    """What was seen, oldest first. A page may be short and still have a cursor; without one it is the last."""

    messages: tuple[Peeked, ...]
    cursor: str | None = None


class Purge(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Remove what waits or is leased of a topic; its dead letters stay."""

    topic: Topic


class Purged(msgspec.Struct, frozen=True):
    """How many were removed."""

    purged: int


class GetDlq(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Page through dead letters; the cursor is that of the page before."""

    topic: Topic | None = None
    # A whole reason, or its kind alone: `rejected` is every `rejected:...`. So in the other requests.
    reason: str | None = None
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=BATCH_MAX)] = 100


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """When and why one attempt ended; of the last one also the error, where its consumer told it."""

    at: int
    cause: str
    error: HandlerError | None = None


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
    # At most so many: nobody touches more than one without having said so.
    limit: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    reason: str | None = None
    dry_run: bool = False
    to: NewTopic | None = None
    # This one alone.
    msg_id: MsgId | None = None


class Reprocessing(msgspec.Struct, frozen=True):
    """How many were taken on (or would be)."""

    accepted: int


class DeleteDead(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Remove dead letters for good: of a topic, with a reason, or one alone."""

    topic: Topic
    limit: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    reason: str | None = None
    dry_run: bool = False
    msg_id: MsgId | None = None


class DeadDeleted(msgspec.Struct, frozen=True):
    """How many are gone (or would be)."""

    deleted: int


class DedupSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How long and how many idem_keys of a topic are remembered, and what happens to a repeat and when it is full.

    Topics with the same `window_s` share one ledger of claims; the largest of their `entries` bounds it.
    """

    window_s: Annotated[int, Meta(ge=1, le=604_800)] = 300
    # None: as many as `mailbox.dedup_entries` says.
    entries: Annotated[int, Meta(ge=1, le=100_000_000)] | None = None
    # The same idem_key with other content: 409, or the answer of the first message.
    mode: Literal["conflict", "first_wins"] = "conflict"
    # No room for another key: 429, or the oldest is forgotten before its time, and counted.
    on_full: Literal["refuse", "oldest_out"] = "refuse"


class TopicSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What holds for one topic instead of the service's own; None: the service's own."""

    # 0 is endless.
    max_attempts: Annotated[int, Meta(ge=0, le=1000)] | None = None
    visibility_ms: VisibilityMs | None = None
    delay_ms: DelayMs | None = None
    retention_s: Annotated[int, Meta(ge=1, le=365 * 86_400)] | None = None
    on_expiry: Literal["dlq", "drop"] | None = None
    # Where a message goes after its last attempt instead of becoming a dead letter here.
    dead_letter_to: Topic | None = None
    dedup: DedupSettings | None = None
    # `any`: a receipt of any lease settles the message while it lives.
    receipts: Literal["strict", "any"] = "strict"
    # How many consecutive messages of one key a receive may take.
    key_batch: Annotated[int, Meta(ge=1, le=BATCH_MAX)] = 1
    fair_by: Literal["group"] | None = None
    # Nothing is delivered; sends go on.
    paused: bool = False
    tags: dict[str, str] = {}
    # Payload and meta together; above the service's own limit only by OAP and in process.
    max_payload: Annotated[int, Meta(ge=1, le=1 << 20)] | None = None

    def __post_init__(self) -> None:
        """Refuse a lease that is too short, and tags that are too many or too large."""
        check_visibility_ms(self.visibility_ms)
        if len(self.tags) > TAGS_MAX:
            raise WrongValue(f"A topic has at most {TAGS_MAX} tags.")
        if sum(len(name.encode()) + len(value.encode()) for name, value in self.tags.items()) > TAGS_BYTES_MAX:
            raise WrongValue(f"The tags are above {TAGS_BYTES_MAX} bytes.")


class GetSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Ask for the settings of a topic."""

    topic: Topic


class PutSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Give a topic these settings, in place of those it had."""

    topic: NewTopic
    settings: TopicSettings

    def __post_init__(self) -> None:
        """Refuse to have dead letters sent where nobody could send; settings that are stored are read as ever."""
        to = self.settings.dead_letter_to
        if to is not None and not re.search(NEW_TOPIC, to):
            raise ValueError(f"dead_letter_to {to!r} has a part that is empty, . or ..")


class DeleteSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Let a topic have the service's settings again."""

    topic: Topic


class SettingsShown(msgspec.Struct, frozen=True):
    """A topic's settings, and the generation of its claims on idem_keys: a purge or a delete raises it."""

    topic: str
    settings: TopicSettings
    generation: int


class SettingsGone(msgspec.Struct, frozen=True):
    """The topic has the service's settings again."""

    ok: bool = True


class DeleteTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Remove a topic whole: messages, dead letters, claims on idem_keys and settings."""

    topic: Topic


class TopicDeleted(msgspec.Struct, frozen=True):
    """How many messages and dead letters were removed."""

    deleted: int


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
        """Look without taking, a page at a time, or at one message alone; NotFound when that is not in the topic."""

    async def purge(self, request: Purge, call: Call = NOBODY) -> Purged:
        """Remove what waits or is leased of a topic."""

    async def dlq(self, request: GetDlq, call: Call = NOBODY) -> DlqPage:
        """Page through dead letters."""

    async def reprocess(self, request: Reprocess, call: Call = NOBODY) -> Reprocessing:
        """Send dead letters back."""

    async def settings(self, request: GetSettings, call: Call = NOBODY) -> SettingsShown:
        """Show a topic's settings; NotFound when it has none of its own."""

    async def put_settings(self, request: PutSettings, call: Call = NOBODY) -> SettingsShown:
        """Give a topic settings; they hold from now on, for what waits already too."""

    async def delete_settings(self, request: DeleteSettings, call: Call = NOBODY) -> SettingsGone:
        """Let a topic have the service's settings again."""

    async def delete_topic(self, request: DeleteTopic, call: Call = NOBODY) -> TopicDeleted:
        """Remove a topic whole."""

    async def delete_dead(self, request: DeleteDead, call: Call = NOBODY) -> DeadDeleted:
        """Remove dead letters for good."""
