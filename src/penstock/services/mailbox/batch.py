"""What one group commit writes, and what follows when it is done. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.services.mailbox.rows import (
    DeadRow,
    IdemClaim,
    MessageRow,
    MessageState,
)

if TYPE_CHECKING:
    from penstock.kernel.errors import PenstockError

After = Callable[[Any], None]


class Batch:
    """Rows to write in one transaction. A state is kept once a message: the last one wins."""

    __slots__ = (
        "acked", "after", "bytes", "claims", "dead", "dead_gone", "failed", "gone", "redriven", "rows",
        "statements", "states", "stored", "topics", "topics_gone", "unsent",
    )  # fmt: skip

    def __init__(self) -> None:
        """Start empty."""
        self.topics: list[tuple[int, str]] = []
        # What an engine made of this batch beforehand, if it does that.
        self.statements: list[tuple[str, Any]] | None = None
        # Topics that hold nothing any more; this alone starts no commit.
        self.topics_gone: list[int] = []
        self.rows: list[MessageRow] = []
        self.claims: list[IdemClaim] = []
        # None takes the state away: the message is plainly ready or gone.
        self.states: dict[int, MessageState | None] = {}
        self.gone: list[int] = []
        self.acked: list[tuple[int, int, int]] = []
        self.dead: list[DeadRow] = []
        self.dead_gone: list[int] = []
        # New messages that take the place of dead letters, by seq.
        self.redriven: dict[int, int] = {}
        self.bytes = 0
        # Called with their argument when the batch is durable, in order: what hangs on the rows, then the rest.
        self.stored: list[tuple[After, Any]] = []
        self.after: list[tuple[After, Any]] = []
        # Called with the error when it is not.
        self.failed: list[Callable[[PenstockError], None]] = []
        # Those of `failed` that hang on the rows alone: a full disk refuses these and commits the rest.
        self.unsent: list[Callable[[PenstockError], None]] = []

    def __bool__(self) -> bool:
        """Tell whether there is anything to write or to wait for."""
        return bool(self.rows or self.states or self.gone or self.after or self.dead or self.dead_gone)

    @property
    def waiting(self) -> int:
        """Return about how many wait for this batch."""
        return len(self.rows) + len(self.after)

    def insert(self, row: MessageRow) -> None:
        """Store a message."""
        self.rows.append(row)
        self.bytes += len(row.payload)

    def remove(self, seq: int, *, bare: bool = False) -> None:
        """Delete a message for good, and its state unless it certainly has none."""
        self.gone.append(seq)
        if not bare:
            self.states[seq] = None

    def bury(self, dead: DeadRow) -> None:
        """Move a message to the dead letters, in this one step."""
        self.dead.append(dead)
        self.states[dead.seq] = None
