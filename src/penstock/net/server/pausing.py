"""Waiting in the middle of a request: a request that waits long gives its slot at the gate back meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.net.server.ticket import NO_TICKET

if TYPE_CHECKING:
    from penstock.net.server.ticket import Ticket

T = TypeVar("T")

QUIET_S: Final = 0.05
"""A busy connection often waits less than this. Giving the slot back each time would make every piece queue for it."""


async def paused(ticket: Ticket, wait: Awaitable[T]) -> T:
    """Wait for a peer that may be slow. After `QUIET_S` the slot is given back; to go on the request queues for one."""
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
