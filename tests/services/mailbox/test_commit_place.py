"""Small batches are committed on the loop while the disk is fast, all others on the writer's thread."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.contracts.mailbox import Send, SendBatch
from penstock.kernel.sync_pace import FAST_IN_A_ROW, SLOW_S
from penstock.services.mailbox.batch import Batch
from penstock.services.mailbox.engines.engine import EngineFailed
from penstock.services.mailbox.engines.sqlite import SqliteEngine
from penstock.services.mailbox.service import MailboxService
from penstock.testing import until
from tests.services.mailbox.worlds import mailbox_options, running


class Watched(SqliteEngine):
    """Notes on which thread it commits and checkpoints, and says that commits take as long as the test wants."""

    takes_s = 0.0
    fails = False

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, fsync=False, wal_bytes=256 << 10)
        self.on_loop: list[bool] = []
        self.checkpointed_on_loop: list[bool] = []

    def commit(self, batch: Batch) -> None:
        self.on_loop.append(threading.current_thread() is threading.main_thread())
        if self.fails:
            assert self._db is not None
            self._db.execute("PRAGMA query_only = 1")
        super().commit(batch)
        self.commit_s = self.takes_s

    def checkpoint(self) -> None:
        super().checkpoint()
        self.checkpointed_on_loop.append(threading.current_thread() is threading.main_thread())


async def send(mailbox: MailboxService, times: int) -> None:
    for _ in range(times):
        await mailbox.api.send(Send("orders", b"x"))


async def test_the_loop_commits_only_after_the_disk_was_seen_to_be_fast(tmp_path: Path) -> None:
    engine = Watched(tmp_path)
    async with running(engine, mailbox_options({})) as mailbox:
        await send(mailbox, FAST_IN_A_ROW)
        assert engine.on_loop == [False] * FAST_IN_A_ROW

        engine.on_loop.clear()
        # Each is on the disk when it is answered for.
        for sent in range(1, 4):
            await send(mailbox, 1)
            assert engine.on_loop == [True] * sent


async def test_one_slow_commit_sends_the_next_ones_to_the_thread(tmp_path: Path) -> None:
    engine = Watched(tmp_path)
    async with running(engine, mailbox_options({})) as mailbox:
        await send(mailbox, FAST_IN_A_ROW)
        engine.takes_s = 2 * SLOW_S
        await send(mailbox, 1)
        engine.takes_s = 0.0
        engine.on_loop.clear()
        await send(mailbox, FAST_IN_A_ROW)
        assert engine.on_loop == [False] * FAST_IN_A_ROW

        engine.on_loop.clear()
        await send(mailbox, 1)
        assert engine.on_loop == [True]


async def test_a_commit_that_fails_on_the_loop_fails_its_sends(tmp_path: Path) -> None:
    engine = Watched(tmp_path)
    async with running(engine, mailbox_options({})) as mailbox:
        await send(mailbox, FAST_IN_A_ROW)
        engine.on_loop.clear()
        engine.fails = True
        with pytest.raises(EngineFailed):
            await send(mailbox, 1)
        assert engine.on_loop == [True]

        # The commit loop was started again; the next commits are made on the thread.
        engine.fails = False
        await until(lambda: mailbox.state.ready)
        await send(mailbox, 1)
        assert engine.on_loop == [True, False]


async def test_a_large_batch_never_holds_the_loop(tmp_path: Path) -> None:
    engine = Watched(tmp_path)
    async with running(engine, mailbox_options({})) as mailbox:
        await send(mailbox, FAST_IN_A_ROW)
        engine.on_loop.clear()
        for count in (64, 65):
            await mailbox.api.send_batch(SendBatch(tuple(Send("orders", b"x") for _ in range(count))))
        await mailbox.api.send(Send("orders", bytes(100 << 10)))

        assert engine.on_loop == [True, False, False]


async def test_a_full_disk_is_looked_at_on_the_thread(tmp_path: Path) -> None:
    engine = Watched(tmp_path)
    async with running(engine, mailbox_options({})) as mailbox:
        await send(mailbox, FAST_IN_A_ROW)
        engine.on_loop.clear()
        # The commit takes the reserve again before it writes, which is a file of many pages.
        engine.full = True
        await send(mailbox, 1)

        assert engine.on_loop == [False]


async def test_the_log_is_copied_on_the_thread_and_never_reaches_its_limit(tmp_path: Path) -> None:
    engine = Watched(tmp_path)
    async with running(engine, mailbox_options({})) as mailbox:
        for _ in range(FAST_IN_A_ROW + 100):
            await mailbox.api.send(Send("orders", bytes(2000)))
            assert engine.wal_bytes < 256 << 10
        await until(lambda: not engine.checkpoint_due)

        assert len(engine.checkpointed_on_loop) > 1
        assert not any(engine.checkpointed_on_loop)
