"""What an engine does: commit batches, and read what is not in RAM. Every call is synchronous, and made on a thread.

A *life* of the mailbox goes from one `open` of its engine to the next; the boot counter numbers them.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.contracts.mailbox import State, TopicSettings
from penstock.kernel.errors import OverLimit, PenstockError
from penstock.services.mailbox.batch import Batch
from penstock.services.mailbox.ids import SLOT_FORM
from penstock.services.mailbox.rows import (
    KIND_DELAYED,
    KIND_LEASED,
    KIND_READY,
    DeadRow,
    IdemClaim,
    Loaded,
    MessageRow,
    MessageState,
    StoredTrace,
)
from penstock.services.mailbox.steady_clock import ClockStamp


class EngineFailed(PenstockError):
    """The engine could not commit, and nobody knows what it holds of the batch."""

    code = "downstream_unavailable"
    status = 503
    retryable = True


class DiskFull(OverLimit):
    """There is no room on the disk for more messages."""

    def __init__(self) -> None:
        super().__init__("The disk is full.", limit="disk", status=507)


class Corrupt(PenstockError):
    """Stored data is damaged in a way that would lose messages in silence; the files are left as they are."""

    code = "not_ready"
    status = 503


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """A topic as the engine finds it at start."""

    id: int
    name: str
    plain: int = 0
    keyed: int = 0
    bytes: int = 0
    delayed: int = 0
    dead: int = 0
    dead_bytes: int = 0
    # Un-keyed messages with a group; `plain` counts those without.
    grouped: int = 0
    form: int = SLOT_FORM
    generation: int = 0
    settings: TopicSettings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineContents:
    """What an engine holds at start."""

    boot: int
    key: bytes
    seq: int = 0
    topic_number: int = 0
    topics: Sequence[StoredTopic] = ()
    # Every lease, and as many delays as fit; the first delay that does not (Unix ms), if any.
    states: Sequence[Loaded] = ()
    later: int | None = None
    # Claims by number, three values each: number, first half of the name, Unix ms.
    claims: array[int] = field(default_factory=lambda: array("Q"))
    # When the life before wrote last, if it left that on record.
    before: ClockStamp | None = None
    # What is wrong with the files, where that was no reason to refuse them.
    damage: str = ""


@dataclass(frozen=True, slots=True)
class TopicPage:
    """Which messages of a topic to show: those of a state behind a seq."""

    topic: int
    state: State
    limit: int
    now: int
    after: int = 0


@dataclass(frozen=True, slots=True)
class DeadPage:
    """Which dead letters to show: those of a topic (or all), with a reason or kind (or any), of a range of seqs."""

    topic: int | None
    reason: str | None
    after: int
    limit: int
    # Whether their payloads are wanted too; then a page may be cut short where they get too large.
    payloads: bool = True
    # The last seq that may be among them.
    up_to: int = (1 << 63) - 1


def state_shown(state: MessageState | None, now: int) -> State:
    """Say in which state a living message is shown: a delay that is over counts for nothing."""
    if state is None or state.kind == KIND_READY or (state.kind == KIND_DELAYED and state.until <= now):
        return "ready"
    return "inflight" if state.kind == KIND_LEASED else "delayed"


def as_loaded(found: tuple[MessageRow, DeadRow]) -> Loaded:
    """Turn a dead letter into what peeks at any message."""
    row, dead = found
    return row, MessageState(dead.seq, 0, 0, dead.attempts, 0)


class EngineReads(Protocol):
    """Reads what is not in RAM. Called on the readers' thread."""

    def window(self, topic: int, group: str | None, after: int, limit: int, bytes_max: int) -> list[Loaded]:
        """Read un-keyed messages of a group, or of none, that wait to be delivered, in order."""

    def group_heads(self, topic: int, after: str, limit: int) -> list[Loaded]:
        """Read the first un-keyed message of each group, in order of the groups."""

    def next_of_key(self, topic: int, key: str, after: int, limit: int) -> list[Loaded]:
        """Read a key's next messages, whatever their state."""

    def key_heads(self, topic: int, after: str, limit: int) -> list[Loaded]:
        """Read the first message of each key, in order of the keys."""

    def due(self, until: int, limit: int) -> tuple[list[Loaded], int | None]:
        """Read messages whose delay ends by then, and when the next one's does."""

    def expired(self, now: int, limit: int) -> list[Loaded]:
        """Read messages whose time to live is over."""

    def waiting_since(self, before: int, limit: int, after: int = 0) -> list[Loaded]:
        """Read the oldest messages behind a seq, as far as they were sent before then and are not leased."""

    def rows(self, seqs: Sequence[int]) -> dict[int, MessageRow]:
        """Read whole rows; one that is damaged or gone is missing from the answer."""

    def one(self, seq: int) -> Loaded | None:
        """Read a living message without its payload; None when there is none."""

    def trace(self, seq: int) -> StoredTrace:
        """Say what is known of a message."""

    def claim(self, n: int) -> IdemClaim | None:
        """Read a claim on an idem_key."""

    def peek(self, page: TopicPage) -> tuple[list[Loaded], int | None]:
        """Read messages of one state, oldest first, and say behind which seq the next page begins; None at the end.

        A page is cut short where its payloads get too large.
        """

    def peek_one(self, topic: int, seq: int, now: int) -> tuple[Loaded, State] | None:
        """Read one message of a topic, living or dead, and its state; None when it is not there."""

    def oldest(self, topic: int) -> int | None:
        """Say when the oldest living message of a topic was sent."""

    def oldest_of_all(self) -> tuple[int, int] | None:
        """Say in which topic the oldest living message of all is, and when it was sent; one step, however many."""

    def living(self, topic: int, after: int, up_to: int, limit: int) -> list[Loaded]:
        """Read a topic's first living messages in a range of seq, leased or not; only an empty answer means no more."""

    def dead(self, page: DeadPage) -> list[tuple[MessageRow, DeadRow]]:
        """Read dead letters, oldest first."""

    def dead_count(self, page: DeadPage) -> int:
        """Count dead letters, at most `limit`."""

    def dead_groups(self, limit: int) -> list[tuple[int, str, int, int, int]]:
        """Count dead letters by topic and reason, the largest groups first: topic, reason, count, first and last."""

    def dead_old(self, before: int, limit: int) -> list[MessageRow]:
        """Read dead letters that died before then, those that died of age first, then the oldest; without payloads."""


class Engine(Protocol):
    """Keeps messages. Called on the one writer's thread; `reads` is called beside it, on another."""

    name: str
    durable: bool
    # The disk has no room: messages are refused.
    full: bool
    # How long the last commit took; for ever, if it failed.
    commit_s: float

    @property
    def reads(self) -> EngineReads:
        """The reading side."""

    def open(self, delays_max: int) -> EngineContents:
        """Raise the boot counter durably, and return what the engine holds. Raises Corrupt."""

    def close(self) -> None:
        """End in good order; safe to call twice."""

    def prepare(self, batch: Batch) -> None:
        """Do on the loop what needs no disk, before a batch is committed."""

    def commit(self, batch: Batch) -> None:
        """Write a batch in one step. Raises DiskFull when nothing was written, EngineFailed when nobody knows."""

    @property
    def checkpoint_due(self) -> bool:
        """Tell whether `checkpoint` should be called before the next commit: the log has grown."""

    @property
    def copy_due(self) -> bool:
        """Tell whether `copy_log` should be called: the log has grown."""

    def copy_log(self) -> None:
        """Copy the log into the database beside the commits, so that `checkpoint` has little to do. On any thread."""

    def checkpoint(self) -> None:
        """Copy the log into the database. Called between two commits, when nobody waits for an answer."""

    def idle(self) -> None:
        """Tidy up; called when nothing has been committed for a moment."""

    def tend(self) -> None:
        """Look after the files, about once a second. Raises EngineFailed when they are gone."""

    def trim(self, acked_before: int, acked_max: int, claims_floors: Sequence[int]) -> bool:
        """Forget a slice of settled receipts that are old or too many, and of claims below the floors; True: more.

        There is a floor for each ledger of claims, as numbers on the disk: it holds within its own class.
        """

    def check(self) -> list[str]:
        """Look for damage in the background; returns what was found."""

    def rebuild(self) -> bool:
        """Make the indexes anew, if that is possible."""
