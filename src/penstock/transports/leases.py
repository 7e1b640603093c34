"""The messages that a program holds: each is leased, and the lease is renewed until it is settled.

A worker that dies stops renewing, so its messages are delivered to another one when their leases end; how long that
takes is the lease, not the longest task. A client belongs to the process that made it: after a fork another is made.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.kernel.errors import Conflict, NotFound
from penstock.sdk import LeaseLost

if TYPE_CHECKING:
    from penstock.sdk.sync import SyncClient, SyncDelivery

LEASE_MS: Final = 30_000
_RECV_MAX: Final = 256


class ProcessClient:
    """The client of this process, made when it is first needed."""

    def __init__(self, connect: Callable[[], SyncClient]) -> None:
        """Take how a client is made."""
        self._connect = connect
        self._client: SyncClient | None = None
        self._pid = 0

    def get(self) -> SyncClient:
        """Return the client; in a process that was forked it is another one."""
        if self._client is None or self._pid != os.getpid():
            self._client, self._pid = self._connect(), os.getpid()
        return self._client

    def close(self) -> None:
        """Close the client, if this process made one."""
        client, self._client = self._client, None
        if client is not None and self._pid == os.getpid():
            client.close()


class HeldMessages:
    """Leased messages by the tag that the framework knows them under."""

    def __init__(self, client: ProcessClient, lease_ms: int = LEASE_MS) -> None:
        """Take the client and the length of a lease."""
        self._client = client
        self._lease_ms = lease_ms
        self._held: dict[str, SyncDelivery] = {}

    def take(self, topic: str, *, most: int = 1, wait_ms: int = 0) -> list[SyncDelivery]:
        """Lease messages; they are renewed from now on."""
        mailbox = self._client.get().mailbox
        return mailbox.lease(topic, max_messages=min(most, _RECV_MAX), visibility_ms=self._lease_ms, wait_ms=wait_ms)

    def hold(self, tag: str, delivery: SyncDelivery) -> None:
        """Remember a message under its tag."""
        self._held[tag] = delivery

    def __len__(self) -> int:
        """Return how many are held."""
        return len(self._held)

    def ack(self, tag: str) -> None:
        """Settle a message; one whose lease was lost is delivered again, and nothing can be done about it here."""
        delivery = self._held.pop(tag, None)
        if delivery is not None:
            _settle(delivery.ack)

    def end(self, tag: str) -> None:
        """Make a message that nobody is to work on again a dead letter: it is kept, and can be sent back."""
        delivery = self._held.pop(tag, None)
        if delivery is not None:
            _settle(lambda: delivery.nack(final=True))

    def give_back(self, tag: str, *, delay_ms: int = 0) -> None:
        """Return a message to its queue."""
        delivery = self._held.pop(tag, None)
        if delivery is not None:
            _settle(lambda: delivery.nack("requeued", delay_ms=delay_ms))

    def give_all_back(self) -> None:
        """Return everything that is held."""
        for tag in tuple(self._held):
            self.give_back(tag)


def _settle(act: Callable[[], None]) -> None:
    try:
        act()
    except (Conflict, NotFound, LeaseLost):
        return
