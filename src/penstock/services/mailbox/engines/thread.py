"""Where engine calls run: on a thread of a bounded pool, or right here for an engine that never blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.pool import Pool
    from penstock.services.mailbox.engines.engine import Engine

P = ParamSpec("P")
R = TypeVar("R")


class EngineThread:
    """Runs the calls of one kind, one after the other."""

    def __init__(self, pool: Pool | None) -> None:
        """Without a pool every call is made at once."""
        self._pool = pool

    async def run(self, op: str, seconds: float, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Make the call within so many seconds."""
        if self._pool is None:
            return call(*args, **kwargs)
        return await self._pool.run(op, seconds, call, *args, **kwargs)

    async def close(self) -> None:
        """End the thread."""
        if self._pool is not None:
            await self._pool.close()


def engine_thread(inventory: Inventory, engine: Engine, name: str, capacity: int) -> EngineThread:
    """Make the thread for one kind of call; an engine in RAM needs none."""
    return EngineThread(None if engine.name == "memory" else inventory.pool(name, threads=1, capacity=capacity))
