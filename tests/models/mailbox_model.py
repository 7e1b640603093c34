"""A lease against its end, on the mailbox in RAM: worker, shard, scanner, writer and commit loop, supervised.

The clients are the model's own. The first acts at any moment, before its lease lapses or after; the second waits for
the message, and it too settles it at any moment.
"""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from penstock import weave
from penstock.contracts.mailbox import Ack, Nack, Recv, Send
from penstock.kernel.child import ChildSpec
from penstock.kernel.clock import LoopClock
from penstock.kernel.errors import PenstockError
from penstock.kernel.inventory import Inventory
from penstock.kernel.log import Log
from penstock.kernel.metrics import Metrics
from penstock.kernel.restart import RestartPolicy
from penstock.kernel.supervisor import Supervisor, SupervisorOptions
from penstock.services.mailbox.config import MailboxOptions, ShardRules
from penstock.services.mailbox.engines.memory import MemoryEngine
from penstock.services.mailbox.service import SERVICE, MailboxService
from penstock.services.mailbox.shards.topics import LEASED, SETTLING
from tests.models.drain_model import Middle

IGNORES = (ChildSpec, Executor, Inventory, Log, Metrics, RestartPolicy, SupervisorOptions, random.Random)
AGENTS = {"writer", "shard_worker", "visibility_scanner"}
"""The others sweep, trim and rebalance every few seconds, and have no part in a lease."""
LEASE_MS = 250
WALL_S = 1_800_000_000.0


@dataclass
class Post:
    """The mailbox, and what its clients saw."""

    service: MailboxService
    engine: MemoryEngine
    acked: list[int] = field(default_factory=list)
    got: list[int] = field(default_factory=list)
    tries: int = 0
    sent: bool = False

    def view(self) -> dict[str, object]:
        """Show the one message in the words of Mailbox.tla; who holds which receipt is not shown."""
        messages = [message for shard in self.service.state.shards for message in shard.window.messages.values()]
        state = "none"
        if messages:
            state = "leased" if messages[0].state in {LEASED, SETTLING} else "ready"
            self.tries = max(self.tries, messages[0].attempts)
        elif self.engine._dead:
            state = "dead"
        elif self.sent:
            state = "acked"
        self.sent = self.sent or bool(messages)
        return {"state": {"a": state}, "tries": {"a": self.tries}}

    def _shards(self) -> list[Any]:
        return list(self.service.state.shards)

    def watch(self) -> None:
        """Look before each lease too: a worker may take a message back and lease it again in one step of the loop."""
        for shard in self._shards():
            shard.lease = partial(self._lease, shard.lease)

    def take_any_receipt(self) -> None:
        """Settle whatever is leased, whoever asks: the planted bug."""
        for shard in self._shards():
            shard._leased = lambda name, _receipt, _now, messages=shard.messages: (
                found if (found := messages.get(name.seq)) is not None and found.state == LEASED else None
            )

    @staticmethod
    def _lease(plain, *given, **options):
        weave.shown()
        return plain(*given, **options)

    async def receive(self, number: int, wait_ms: int = 0):
        """Take the message, if there is one."""
        answer = await self.service.api.recv(Recv("orders", visibility_ms=LEASE_MS, wait_ms=wait_ms))
        self.got += [number for _ in answer.messages]
        return answer.messages[0] if answer.messages else None

    async def ack(self, number: int, message) -> bool:
        """Ack; tell whether it counted."""
        try:
            await self.service.api.ack(Ack(message.msg_id, message.receipt))
        except PenstockError:
            return False
        self.acked.append(number)
        return True


async def some_moment() -> None:
    """Wait until something happens outside: soon, or late, but not much later than a lease lasts."""
    loop = asyncio.get_running_loop()
    moment = loop.create_future()

    def happen() -> None:
        if not moment.done():
            moment.set_result(None)

    happens = weave.event(happen)
    at_last = loop.call_later(1.2 * LEASE_MS / 1000, happen)
    await moment
    happens.cancel()
    at_last.cancel()


async def lease(action: str = "ack", *, planted: bool = False) -> str:
    """Send one message, lease it, and act on it before or after its lease lapses, while another client asks for it."""
    engine = MemoryEngine(bytes(32))
    inventory = Inventory(SERVICE, LoopClock(WALL_S))
    service = MailboxService(inventory, MailboxOptions(ready_shards=1, rules=ShardRules(max_attempts=2)), engine=engine)
    service.state.rng.seed(0)
    specs = [spec for spec in service.children() if spec.name in AGENTS]
    boss = Supervisor(inventory, specs, service.supervision(), rng=Middle())
    post = Post(service, engine)
    with weave.still():
        await boss.start()
        weave.view(post.view)
        post.watch()
        if planted:
            post.take_any_receipt()
        await service.api.send(Send("orders", b"x"))
        first = await post.receive(1)

    async def act() -> None:
        await some_moment()
        if action == "ack":
            await post.ack(1, first)
        else:
            with suppress(PenstockError):
                await service.api.nack(Nack(first.msg_id, first.receipt, delay_ms=0))

    async def ask() -> None:
        again = await post.receive(2, wait_ms=2 * LEASE_MS)
        if again is not None:
            await some_moment()
            await post.ack(2, again)

    await asyncio.gather(act(), ask())
    assert len(post.acked) <= 1, f"acked by {post.acked}"
    assert post.acked != [1] or 2 not in post.got, "delivered again after its ack"
    with weave.still():
        await asyncio.sleep(2 * LEASE_MS / 1000)
        await boss.drain()
        await service.close()
    return f"acked by {post.acked}, delivered to {post.got}"
