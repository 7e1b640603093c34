"""Stores one record at the nodes nearest to its key: sends it, counts who took it, and says when that is a majority."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from penstock.kernel.errors import PenstockError
from penstock.services.dht.agents.record_keeper import Keeping
from penstock.services.dht.core.ids import to_text
from penstock.services.dht.protocol.envelope import Opcode
from penstock.services.dht.protocol.messages import DhtAnswer, provide_request, read_answer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.kernel.channel import Channel
    from penstock.services.dht.core.contact import Contact
    from penstock.services.dht.core.record import ProviderRecord
    from penstock.services.dht.peers.link import PeerReply
    from penstock.services.dht.peers.pool import PeerPool


class Publishing:
    """One record on its way out. Everything happens in callbacks; `settled` is set when enough is known."""

    def __init__(self, pool: PeerPool, records: Channel[Keeping], record: ProviderRecord) -> None:
        self.record = record
        self.stored: list[Contact] = []
        self.at_home = False  # whether this node keeps it too
        self.pending = 0
        self.settled = asyncio.Event()
        self.finished = asyncio.Event()
        self._pool = pool
        self._records = records
        self._request = provide_request(record)
        self._sent: set[int] = set()
        self._needed: int | None = None

    @property
    def count(self) -> int:
        """Return how many nodes keep it, this one included."""
        return len(self.stored) + self.at_home

    @property
    def reached(self) -> bool:
        """Tell whether a majority keeps it."""
        return self._needed is not None and self.count >= self._needed

    def keep_at_home(self) -> None:
        """Hand it to this node's own keeper."""
        self.pending += 1
        try:
            self._records.try_send(Keeping(self.record, None, self._on_kept))
        except PenstockError:
            self.pending -= 1

    def _on_kept(self, payload: bytes) -> None:
        self.at_home = read_answer(payload).accepted
        self._one_less()

    def send(self, contact: Contact) -> None:
        """Send it to a node, once."""
        if contact.id in self._sent:
            return
        self._sent.add(contact.id)
        self.pending += 1
        self._pool.ask(contact, Opcode.PROVIDE, self._request, partial(self._on_reply, contact))

    def send_all(self, contacts: Iterable[Contact], k: int) -> None:
        """Send it to the nearest nodes, now that they are known, and fix how many are enough."""
        nearest = list(contacts)
        for contact in nearest:
            self.send(contact)
        self._needed = min(k, len(nearest) + 1) // 2 + 1
        self._judge()

    def _on_reply(self, contact: Contact, reply: PeerReply) -> None:
        if isinstance(reply, DhtAnswer) and reply.accepted:
            self.stored.append(contact)
        self._one_less()

    def _one_less(self) -> None:
        self.pending -= 1
        self._judge()

    def _judge(self) -> None:
        if self._needed is None:
            return
        if not self.pending:
            self.finished.set()
        if self.reached or not self.pending:
            self.settled.set()

    def keepers(self) -> tuple[str, ...]:
        """Name the nodes that keep it, so that a withdrawal finds them."""
        return tuple(f"{to_text(each.id)}@{each.host}:{each.port}" for each in self.stored)
