"""Asks the engine for what is not in RAM, on a thread of its own, and reports damage that it meets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from penstock.kernel.log import Log
from penstock.services.mailbox.agents.audit import append_lines
from penstock.services.mailbox.engines.engine import Corrupt, Engine
from penstock.services.mailbox.engines.thread import engine_thread

if TYPE_CHECKING:
    from penstock.kernel.inventory import Inventory
    from penstock.services.mailbox.state import MailboxState

P = ParamSpec("P")
R = TypeVar("R")

_READ_S: Final = 5.0
_CHECK_S: Final = 600.0


class EngineReader:
    """The reading side of the engine. Damage is counted, logged once, and shuts the `storage` gate."""

    def __init__(self, inventory: Inventory, engine: Engine, state: MailboxState) -> None:
        self.reads = engine.reads
        self._engine = engine
        self.thread = engine_thread(inventory, engine, "mailbox_reads", 4096)
        # A check takes minutes: nobody else waits for its thread.
        self._check_thread = engine_thread(inventory, engine, "mailbox_check", 1)
        self.storage = inventory.health.gate("storage", is_open=True)
        self._state = state
        self._log = Log(inventory.service)
        inventory.timeout("mailbox.read", _READ_S, "503")

    async def ask(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Make one reading call of the engine."""
        self._state.check_ready()
        try:
            found = await self.thread.run("mailbox_read", _READ_S, call, *args, **kwargs)
        except Corrupt as damage:
            self.report("file", damage.detail)
            raise
        self.count_damage()
        return found

    async def check_storage(self) -> list[str]:
        """Look for damage in the whole file; returns what is wrong."""
        return await self._check_thread.run("mailbox_check", _CHECK_S, self._engine.check)

    async def note(self, records: list[dict[str, object]]) -> None:
        """Write into the audit, and wait until it is on the disk."""
        path = self._state.options.audit_path
        if path is not None:
            await self.thread.run("mailbox_audit", _READ_S, append_lines, path, records)

    def report(self, where: str, detail: str) -> None:
        """Say what cannot be read. A damaged log only degrades; a damaged file shuts the gate, and is said once."""
        if where != "wal" and not self.storage.open:
            return
        self._state.integrity[where if where == "wal" else "file"].value += 1
        self.storage.set(is_open=where == "wal", degraded=True, why=detail[:200])
        self._log.error("storage.damaged", where=where, detail=detail)

    def count_damage(self) -> None:
        """Count the damaged rows and states that the last calls met."""
        for reason, name in (("row", "damaged"), ("state", "damaged_states")):
            damaged: list[int] = getattr(self.reads, name, [])
            if damaged:
                self._state.integrity[reason].value += len(damaged)
                self._log.error("integrity.fail", reason=reason, seqs=damaged[:10])
                damaged.clear()

    async def close(self) -> None:
        """End the threads."""
        await self.thread.close()
        await self._check_thread.close()


async def pause(seconds: float) -> None:
    """Wait a moment; a drain does not end it."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(seconds, finish, future)  # lint: allow PK006 only ends a pause
    await future


def finish(future: asyncio.Future[None]) -> None:
    """Complete a future, unless whoever awaited it is gone."""
    if not future.done():
        future.set_result(None)
