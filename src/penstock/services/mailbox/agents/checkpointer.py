"""The Checkpointer: has the engine copy a log that has grown, beside the commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.kernel.child import Child
from penstock.services.mailbox.engines.engine import EngineFailed
from penstock.services.mailbox.engines.thread import engine_thread

if TYPE_CHECKING:
    from penstock.services.mailbox.engines.engine import Engine
    from penstock.services.mailbox.state import MailboxParts

_COPY_S: Final = 30.0


class Checkpointer:
    """Has a thread of its own, so that the writer's thread goes on committing."""

    def __init__(self, parts: MailboxParts, engine: Engine) -> None:
        self._engine = engine
        self._writer = parts.writer
        self._thread = engine_thread(parts.inventory, engine, "mailbox_checkpoint", 1)

    async def run(self, child: Child) -> None:
        """Copy whenever the writer finds that the log has grown, until the service drains."""
        grown = self._writer.log_grown
        forget = child.shutdown.on_drain(grown.set)
        try:
            while not child.shutdown.draining:
                await grown.wait()
                grown.clear()
                if self._engine.copy_due:
                    await self._copy()
        finally:
            forget()

    async def _copy(self) -> None:
        try:
            await self._thread.run("mailbox_copy", _COPY_S, self._engine.copy_log)
        except EngineFailed:
            # The writer meets the failure in its checkpoint, between two commits, and the files are opened anew.
            await self._writer.between(self._meet_failure)

    def _meet_failure(self) -> bool:
        self._engine.checkpoint()
        return True

    async def close(self) -> None:
        """End the thread."""
        await self._thread.close()
