"""What one group commit writes, who waits for it, and what came of it. Pure.

Workers and agents put rows, states and removals into the open `Batch`, and beside them, as plain values, what has to
happen when they are durable: the messages whose lease ended, and the jobs that want their answer. The writer commits
the batch and returns a `Committed`. The commit loop applies it: see `commit_loop`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.services.mailbox.rows import (
    DeadRow,
    IdemClaim,
    MessageRow,
    MessageState,
    TopicRow,
)

if TYPE_CHECKING:
    import asyncio

    from penstock.contracts.mailbox import TopicSettings
    from penstock.kernel.errors import PenstockError
    from penstock.services.mailbox.jobs import Settled, Stored
    from penstock.services.mailbox.ledger import Over
    from penstock.services.mailbox.shards.topics import Message


class Batch:
    """Rows to write in one transaction. A state is kept once a message: the last one wins."""

    __slots__ = (
        "acked", "acked_runs", "at_ms", "buried", "bytes", "claims", "dead", "dead_gone", "ended", "flushes",
        "gone", "over",
        "redriven", "rows", "settings", "settled", "statements", "states", "stored", "topics", "topics_gone",
    )  # fmt: skip

    def __init__(self) -> None:
        # --- what is written
        self.topics: list[TopicRow] = []
        # Topics that hold nothing any more; this alone starts no commit.
        self.topics_gone: list[int] = []
        # By the number of the topic; None takes them away.
        self.settings: dict[int, TopicSettings | None] = {}
        self.rows: list[MessageRow] = []
        self.claims: list[IdemClaim] = []
        # None takes the state away: the message is plainly ready or gone.
        self.states: dict[int, MessageState | None] = {}
        self.gone: list[int] = []
        self.acked: list[tuple[int, int, int]] = []
        self.dead: list[DeadRow] = []
        # Dead letters to remove, as they were read.
        self.dead_gone: list[MessageRow] = []
        # New messages that take the place of dead letters, by seq.
        self.redriven: dict[int, int] = {}
        self.bytes = 0
        # When it was handed to the engine, in wall milliseconds.
        self.at_ms = 0
        # What an engine made of this batch beforehand, if it does that.
        self.statements: list[tuple[str, Any]] | None = None
        # --- what follows when it is durable
        # Sends whose rows are in this batch, in order. A full disk refuses these and commits the rest.
        self.stored: list[Stored] = []
        # Messages whose lease or wait ended, in the way their `ending` says.
        self.ended: list[Message] = []
        # Messages of one shard that were acked together.
        self.acked_runs: list[list[Message]] = []
        # Messages that became dead letters, each with its reason.
        self.buried: list[tuple[Message, str]] = []
        # Leases and delays that the disk then knows to be over.
        self.over: list[Over] = []
        # Settlements and purges that have their answer and wait for the disk.
        self.settled: list[Settled] = []
        # Those who only want to know when everything up to here is durable.
        self.flushes: list[asyncio.Future[None]] = []

    def __bool__(self) -> bool:
        """Tell whether there is anything to write or to wait for."""
        return bool(
            self.rows or self.states or self.gone or self.settled or self.ended or self.flushes or self.dead
            or self.dead_gone or self.settings
        )  # fmt: skip

    @property
    def waiting(self) -> int:
        """Return about how many wait for this batch."""
        return len(self.rows) + len(self.ended) + len(self.settled)

    def insert(self, row: MessageRow) -> None:
        """Store a message."""
        self.rows.append(row)
        self.bytes += row.size

    def remove(self, seq: int, *, bare: bool = False) -> None:
        """Delete a message for good, and its state unless it certainly has none."""
        self.gone.append(seq)
        if not bare:
            self.states[seq] = None

    def bury(self, message: Message, dead: DeadRow) -> None:
        """Move a message to the dead letters, in this one step."""
        self.dead.append(dead)
        self.states[dead.seq] = None
        self.buried.append((message, dead.reason))

    def drop_rows(self) -> RefusedRows:
        """Take the messages out of a batch that is too large for the disk; what is left only settles and removes."""
        refused = RefusedRows(self.rows, self.stored, self.claims, self.redriven)
        seqs = {row.seq for row in self.rows}
        self.states = {seq: state for seq, state in self.states.items() if seq not in seqs}
        self.rows, self.stored, self.claims, self.redriven, self.statements = [], [], [], {}, None
        return refused


class RefusedRows(NamedTuple):
    """The part of a batch that a full disk refused: it is certain that nothing of it is stored."""

    rows: list[MessageRow]
    stored: list[Stored]
    claims: list[IdemClaim]
    redriven: dict[int, int]


class Committed(NamedTuple):
    """What came of a batch: durable; durable without the messages that were refused; or, with an error, unknown."""

    batch: Batch
    refused: RefusedRows | None = None
    error: PenstockError | None = None
