"""Waiting in the middle of a request: whoever waits long gives its slot at the gate back meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.net.server.ticket import NO_TICKET

if TYPE_CHECKING:
    from penstock.net.server.ticket import Ticket

T = TypeVar("T")

QUIET_S: Final = 0.05
"""Shorter waits are the pace of a busy connection: giving up a slot for them would only make a queue of its pieces."""


async def paused(ticket: Ticket, wait: Awaitable[T]) -> T:
    """Wait for a peer that may take its time. After a while the slot is free for others; it is taken again by the queue."""
    if ticket is NO_TICKET:
        return await wait
    # lint: allow PK006 one timer, taken off the loop when the wait is over, whichever way it ends
    timer = asyncio.get_running_loop().call_later(QUIET_S, ticket.park)
    try:
        done = await wait
    finally:
        timer.cancel()
    slot = ticket.unpark()
    if slot is not None:
        await slot
    return done
