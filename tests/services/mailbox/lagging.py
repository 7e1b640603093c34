"""A mailbox whose reads and commits take a few turns of the loop, always the same, and fail when they are told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from penstock import testing
from penstock.contracts.mailbox import Recv, Send
from penstock.kernel.errors import PenstockError
from penstock.services.mailbox.config import MailboxBounds, MailboxOptions
from penstock.services.mailbox.engines.engine import DiskFull, EngineFailed
from penstock.services.mailbox.engines.memory import MemoryEngine
from penstock.services.mailbox.engines.sqlite import SqliteEngine
from penstock.services.mailbox.engines.thread import EngineThread
from penstock.services.mailbox.service import MailboxService
from penstock.testing.loop import VirtualLoop
from penstock.testing.session import Session, run_with
from tests.services.mailbox.worlds import running


class Lagging(EngineThread):
    """Makes a call after so many turns of the loop, and answers after as many more and some seconds."""

    def __init__(self, turns: int, seconds: float = 0.0) -> None:
        super().__init__(None)
        self._turns = turns
        self._seconds = seconds

    async def run(self, _op, _seconds, call, *args, **kwargs):
        await self._lag()
        result = call(*args, **kwargs)
        await self._lag()
        if self._seconds:
            await asyncio.sleep(self._seconds)
        return result

    async def _lag(self) -> None:
        for _ in range(self._turns):
            await asyncio.sleep(0)


class Failing:
    """Makes an engine fail on demand: a commit by a full disk or for good, before or after it took effect; a read."""

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        self.reads = FailingReads(self, self.reads)
        self.failures: list[str] = []
        self.failing_reads = 0
        # Messages whose bytes do not match.
        self.spoiled: set[int] = set()

    def commit(self, batch) -> None:
        failure = self.failures.pop(0) if self.failures else ""
        if failure == "full" and batch.rows:
            raise DiskFull
        if failure == "after":
            super().commit(batch)
        if failure in ("before", "after"):
            raise EngineFailed("The commit failed.", outcome="unknown")
        super().commit(batch)

    def _read(self) -> None:
        if self.failing_reads:
            self.failing_reads -= 1
            raise EngineFailed("The read failed.")


class FailingReads:
    """The reads of an engine that fails on demand."""

    def __init__(self, engine, reads) -> None:
        self._engine = engine
        self._reads = reads

    def __getattr__(self, name: str):
        return getattr(self._reads, name)

    def window(self, *args):
        self._engine._read()
        return self._reads.window(*args)

    def next_of_key(self, *args):
        self._engine._read()
        return self._reads.next_of_key(*args)

    def key_heads(self, *args):
        self._engine._read()
        return self._reads.key_heads(*args)

    def rows(self, seqs):
        self._engine._read()
        return self._reads.rows([seq for seq in seqs if seq not in self._engine.spoiled])


class FailingMemory(Failing, MemoryEngine):
    """Dictionaries that fail."""


class FailingSqlite(Failing, SqliteEngine):
    """A file that fails."""


def failing_engine(directory: Path | None = None):
    """Make an engine that fails on demand: in this directory, or in RAM."""
    return FailingMemory(bytes(32)) if directory is None else FailingSqlite(directory, fsync=False, wal_bytes=1 << 20)


@asynccontextmanager
async def lagging(turns: int = 1, **wishes) -> AsyncIterator[MailboxService]:
    """Run a mailbox whose disk takes its time."""
    bounds = MailboxBounds(**wishes.pop("bounds", {}))
    engine = wishes.pop("engine", None) or failing_engine()
    options = MailboxOptions(bounds=bounds, **{"ready_shards": 4, **wishes})
    async with running(engine, options) as mailbox:
        threads = mailbox.reader.thread, mailbox.writer.thread
        mailbox.reader.thread = mailbox.writer.thread = Lagging(turns)
        try:
            yield mailbox
        finally:
            mailbox.reader.thread, mailbox.writer.thread = threads


class Steps:
    """Counts the steps of a run from `begin` on, and does something before one of them."""

    def __init__(self, at: int | None) -> None:
        self.at = at
        self.count = -1
        self.act: Callable[[], object] | None = None
        self.acted_at = 0.0

    def begin(self, act: Callable[[], object]) -> None:
        self.act, self.count = act, 0

    def end(self) -> None:
        """Act now if the step never came."""
        if self.act is not None:
            act, self.act = self.act, None
            self.acted_at = asyncio.get_running_loop().time()
            act()

    def observe(self, _handle: asyncio.Handle) -> None:
        if self.act is None:
            return
        if self.count == self.at:
            self.end()
        self.count += 1


def at_every_step(scenario: Callable[[Steps], object], limit: int = 400) -> int:
    """Run a scenario again and again, each time with its act before another step, until the act comes last of all."""
    for at in range(limit):
        steps = Steps(at)
        try:
            run_with(partial(scenario, steps), Session(VirtualLoop(observer=steps.observe)), "scenario")
        except BaseException as error:
            error.add_note(f"with the act before step {at}")
            raise
        if steps.count <= at:
            return at
    raise AssertionError("the scenario does not end")


# In every turn of the loop, so that virtual time stands still meanwhile.
until = partial(testing.until, every_s=0)


async def reopened(mailbox, failure: str = "before") -> None:
    """Let the engine fail, and wait until it is open again."""
    mailbox.engine.failures.append(failure)
    with pytest.raises(PenstockError):
        await mailbox.api.send(Send("elsewhere", b"doubtful"))
    await mailbox.until_ready()


async def taken(mailbox, topic: str, **more) -> list:
    """Receive what there is, and a moment later."""
    return list((await mailbox.api.recv(Recv(topic, 10, wait_ms=100, **more))).messages)
