"""What a request holds at its listener's gate. Where there is no gate it holds a ticket that does nothing.

A gate admits some requests, lets others wait and refuses the rest. The listener does not know its rules: it only
tells the ticket what happens to the request, and the gate gives and takes its slot accordingly. A service without a
gate leaves `NO_TICKET` on its requests, so that nothing in the listener has to ask whether there is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from penstock.net.server.admission import Refusal

# Told once about a request that was held: None to go on, or what to answer instead.
Waiter = Callable[["Refusal | None"], None]


class Ticket(Protocol):
    """A place while the request waits, a slot while it runs.

    Whoever admits the request puts the ticket on it. The listener calls `ended` at every end, possibly more than once;
    a ticket ends the first time.
    """

    # Bytes of streamed bodies that have passed, both ways; the listener adds to it.
    bytes_seen: int
    # Set by the listener while the request is held.
    waiter: Waiter | None

    @property
    def relayed(self) -> bool:
        """Tell whether a gateway judged the request's capability, and charged it, before the service behind does."""
        ...

    def ended(self, seen_bytes: int, *, answered: bool) -> None:
        """Give everything back; so many bytes were seen beside those in `bytes_seen`."""
        ...

    def answering(self) -> None:
        """Note that a streamed answer begins: what counts as latency ends here."""
        ...

    def park(self) -> bool:
        """Give the slot back while the handler waits for something to send; False: too many do, answer at once."""
        ...

    def unpark(self) -> asyncio.Future[None] | None:
        """Take a slot again: None when it is there at once, else what to wait for."""
        ...

    def worked(self, seconds: float) -> None:
        """Charge own work that its bytes do not show."""
        ...

    def step_aside(self) -> None:
        """Give the slot back while the body arrives, or raise `Busy`."""
        ...

    def step_back(self) -> bool:
        """Take a slot again, because the body is whole; False when `waiter` will be told."""
        ...


class NoTicket:
    """The ticket of a request at a listener without a gate: it holds nothing, and nothing is ever refused by it."""

    __slots__ = ()

    relayed: Final = False

    @property
    def bytes_seen(self) -> int:
        """Nobody counts."""
        return 0

    @bytes_seen.setter
    def bytes_seen(self, count: int) -> None:
        """Nobody counts."""

    @property
    def waiter(self) -> Waiter | None:
        """Nobody waits."""
        return None

    @waiter.setter
    def waiter(self, waiter: Waiter | None) -> None:
        """Refuse to hold a request: nobody would ever decide about it."""
        raise RuntimeError("a request was held without a ticket: whoever holds it has to put one on it")

    def ended(self, seen_bytes: int, *, answered: bool) -> None:
        """Give nothing back."""

    def answering(self) -> None:
        """Note nothing."""

    def park(self) -> bool:
        """Say that the handler may wait."""
        return True

    def unpark(self) -> asyncio.Future[None] | None:
        """Say that the handler may go on at once."""
        return None

    def worked(self, seconds: float) -> None:
        """Charge nobody."""

    def step_aside(self) -> None:
        """Let the body arrive."""

    def step_back(self) -> bool:
        """Say that the handler may be called at once."""
        return True


NO_TICKET: Final = NoTicket()
