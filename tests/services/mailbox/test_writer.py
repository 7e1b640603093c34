"""The writer: whatever becomes of a commit, everybody who waits for it hears of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from penstock.contracts.mailbox import Ack, Recv, Send
from penstock.kernel.clock import SYSTEM
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from penstock.services.mailbox.config import MailboxOptions
from penstock.services.mailbox.engines.engine import EngineFailed
from penstock.services.mailbox.engines.memory import MemoryEngine
from penstock.services.mailbox.engines.thread import EngineThread
from penstock.services.mailbox.service import SERVICE, MailboxService
from tests.services.mailbox.test_http import HI, LISTENER, Http
from tests.services.mailbox.worlds import mailbox_options, running


class Buggy(MemoryEngine):
    """Raises what no engine should, once, at the step that is named."""

    def __init__(self) -> None:
        super().__init__(bytes(32))
        self.bug = ""

    def prepare(self, batch) -> None:
        self._fall_over("prepare")

    def commit(self, batch) -> None:
        self._fall_over("commit")
        super().commit(batch)

    def _fall_over(self, step: str) -> None:
        if self.bug == step:
            self.bug = ""
            raise OverflowError("int too large to convert")


@pytest.mark.parametrize("step", ["prepare", "commit"])
async def test_bug_in_a_commit_leaves_nobody_without_an_answer(step: str) -> None:
    engine = Buggy()
    async with running(engine, mailbox_options({})) as mailbox:
        await mailbox.api.send(Send("orders", b"before"))
        (held,) = (await mailbox.api.recv(Recv("orders", visibility_ms=60_000))).messages
        await asyncio.sleep(1)
        engine.bug = step
        loop = asyncio.get_running_loop()
        asked = [
            loop.create_task(mailbox.api.send(Send("orders", b"doubtful"))),
            loop.create_task(mailbox.api.ack(Ack(held.msg_id, held.receipt))),
        ]
        for task in asked:
            async with asyncio.timeout(5):
                with pytest.raises(EngineFailed) as caught:
                    await task
            assert caught.value.facts["outcome"] == "unknown"
        await mailbox.until_ready()
        await mailbox.api.send(Send("orders", b"after"))

        assert (await mailbox.api.ack(Ack(held.msg_id, held.receipt))).ok


class Held(MemoryEngine):
    """Commits when it is let."""

    def __init__(self) -> None:
        super().__init__(bytes(32))
        self.let = asyncio.Event()


class Slow(EngineThread):
    """Runs the calls of an engine that is held."""

    def __init__(self, engine: Held) -> None:
        super().__init__(None)
        self._engine = engine

    async def run(self, op, seconds, call, *args, **kwargs):
        if op == "mailbox_commit":
            await self._engine.let.wait()
        return await super().run(op, seconds, call, *args, **kwargs)


@pytest.mark.real_loop
async def test_send_that_is_overdue_says_that_nobody_knows_and_is_stored_all_the_same() -> None:
    engine = Held()
    options = MailboxOptions(listener=replace(LISTENER, request_deadline_s=0.05))
    service = MailboxService(Inventory(SERVICE, SYSTEM), options, engine=engine)
    service.writer.thread = Slow(engine)
    supervisor = Supervisor(service.inventory, service.children(), service.supervision())
    await supervisor.start()
    http = Http(service.listener.port)
    send = {"topic": "orders", "payload_b64": HI, "idem_key": "one"}
    status, problem = await http.post("/v1/send", send)
    assert (status, problem["code"], problem["outcome"]) == (504, "timeout", "unknown")
    engine.let.set()
    while service.state.ledger.topics["orders"].living == 0:  # noqa: ASYNC110 - nothing tells us
        await asyncio.sleep(0)
    again = await service.api.send(Send("orders", b"hi", idem_key="one"))
    http.close()
    await supervisor.drain(25.0)
    await service.close()

    assert again.duplicate
