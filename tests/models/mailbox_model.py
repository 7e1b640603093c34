"""A lease against its end, on the mailbox in RAM: worker, shard, scanner, writer and commit loop, supervised.

The clients are the model's own. The first acts at any moment, before its lease lapses or after; the second waits for
the message, and it too settles it at any moment. Beside that the worker or the writer may be killed, or the service
may stop, at any moment.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from penstock import weave
from penstock.contracts.mailbox import Ack, Extend, Nack, Recv, Send
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
from penstock.services.mailbox.jobs import SettleJob
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
    state: str = "none"

    def view(self) -> dict[str, object]:
        """Show the one message in the words of Mailbox.tla; who holds which receipt is not shown."""
        messages = [message for shard in self.service.state.shards for message in shard.window.messages.values()]
        if messages:
            self.tries = messages[0].attempts
            self.state = "leased" if messages[0].state in {LEASED, SETTLING} else "ready"
        elif self.engine._dead:
            self.state = "dead"
        elif not self.engine._rows and self.state != "none":
            # What the engine still holds and RAM does not was not read yet after a restart: nothing is known of it.
            self.state = "acked"
        return {"state": {"a": self.state}, "tries": {"a": self.tries}}

    def _shards(self) -> list[Any]:
        return list(self.service.state.shards)

    def watch(self) -> None:
        """Look before each lease too: a worker may take a message back and lease it again in one step of the loop."""
        for shard in self._shards():
            shard.lease = partial(self._lease, shard.lease)

    def watch_after_restarts(self) -> None:
        """Watch the shards of each life: a restarted writer reads all of them from the engine."""
        state: Any = self.service.state
        plain = state.open

        def opened(contents) -> None:
            plain(contents)
            self.watch()

        state.open = opened
        self.watch()

    def take_any_receipt(self) -> None:
        """Settle whatever is leased, whoever asks: the planted bug."""
        for shard in self._shards():
            shard._leased = lambda name, _receipt, _now, messages=shard.messages: (
                found if (found := messages.get(name.seq)) is not None and found.state == LEASED else None
            )

    def answer_early(self) -> None:
        """Answer a settlement before it is written: the other planted bug."""
        for worker in self.service.dispatcher.workers:
            worker._do[SettleJob] = partial(self._settle_early, worker._do[SettleJob])

    def _settle_early(self, plain, job, now) -> None:
        plain(job, now)
        batch = self.service.writer.batch
        if job in batch.settled:
            batch.settled.remove(job)
            job.committed()

    @staticmethod
    def _lease(plain, *given, **options):
        weave.shown()
        return plain(*given, **options)

    def judge_the_end(self) -> None:
        """Demand that the message is acked or dead or still stored, and only one of these."""
        stored, dead = len(self.engine._rows), len(self.engine._dead)
        assert stored + dead + len(self.acked) == 1, f"stored {stored}, dead {dead}, acked by {self.acked}"

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


ENDED_S = 5.0
"""Long enough for every lease, restart and retry to be over."""


def act_on(post: Post, action: str, first) -> Callable[[], Coroutine[Any, Any, None]]:
    """Make what the first client does with its message, at some moment."""
    api = post.service.api

    async def act() -> None:
        await some_moment()
        if action == "ack":
            await post.ack(1, first)
            return
        with suppress(PenstockError):
            if action == "nack":
                await api.nack(Nack(first.msg_id, first.receipt, delay_ms=0))
            else:
                await api.extend(Extend(first.msg_id, first.receipt, visibility_ms=LEASE_MS))

    return act


async def lease(action: str = "ack", *, happens: str = "", planted: str = "") -> str:
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
        post.watch_after_restarts()
        if planted == "any receipt":
            post.take_any_receipt()
        elif planted == "answers early":
            post.answer_early()
        await service.api.send(Send("orders", b"x"))
        first = await post.receive(1)

    async def ask() -> None:
        with suppress(PenstockError):
            again = await post.receive(2, wait_ms=2 * LEASE_MS)
            if again is not None:
                await some_moment()
                await post.ack(2, again)

    async def stop() -> None:
        await some_moment()
        service.stop_intake()
        await boss.drain()

    if happens in AGENTS:
        weave.event(boss.kill, happens)
    work = [act_on(post, action, first)(), ask(), *([stop()] if happens == "stop" else [])]
    await asyncio.gather(*work)
    assert len(post.acked) <= 1, f"acked by {post.acked}"
    assert post.acked != [1] or 2 not in post.got, "delivered again after its ack"
    with weave.still():
        await asyncio.sleep(ENDED_S if happens else 2 * LEASE_MS / 1000)
        await boss.drain()
        await service.close()
    post.judge_the_end()
    return f"acked by {post.acked}, delivered to {post.got}"
