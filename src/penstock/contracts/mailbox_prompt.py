"""The mailbox for callers in the same process that have no task to wait in: each call begins at once, or not at all.

Everything is as in the contract itself. A call returns a late answer, which tells one follower in the step that brings
it; there is no task for the request, and no turn of the loop. It returns None where the verdict on the capability or
the topic of a message is not known yet: then the caller takes the contract's own method, which waits. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from penstock.contracts.call import Call
from penstock.contracts.mailbox import Recv, Send, Settlement
from penstock.kernel.deadline import Deadline


class LateAnswer(Protocol):
    """An answer that comes later: a value of the contract, or an error of the platform."""

    done: bool
    result: Any

    def follow(self, follower: Callable[[Any], None]) -> None:
        """Say who is to be told. Only for an answer that is still to come."""

    def cancel(self) -> None:
        """Give up: nobody waits any more."""


class PromptMailbox(Protocol):
    """What can be begun without waiting. Refusals are raised."""

    def send(self, request: Send, call: Call, deadline: Deadline) -> LateAnswer | None:
        """Store a message; brings a `Sent`."""

    def send_batch(self, sends: Sequence[Send], call: Call, deadline: Deadline) -> LateAnswer | None:
        """Store messages of one topic, each on its own; brings the `SendResult` of each."""

    def recv(self, request: Recv, call: Call, deadline: Deadline) -> LateAnswer | None:
        """Lease messages; brings a `Received`."""

    def settle(self, op: str, request: Settlement, call: Call, deadline: Deadline) -> LateAnswer | None:
        """Settle one message; brings what the contract answers."""

    def settle_batch(
        self, op: str, requests: Sequence[Settlement], call: Call, deadline: Deadline
    ) -> LateAnswer | None:
        """Settle messages, each on its own; brings the `SettleResult` of each."""


@runtime_checkable
class OffersPrompt(Protocol):
    """A mailbox in the same process: it has a prompt side."""

    @property
    def prompt(self) -> PromptMailbox:
        """Return it."""
