"""A read that fails is asked for again: no key and no window stays behind it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock.contracts.mailbox import Ack, Recv
from penstock.kernel.errors import Timeout
from tests.services.mailbox.test_windows import fill
from tests.services.mailbox.worlds import mailbox_options, make_engine, running


async def test_failed_read_of_a_key_delays_it_but_never_strands_it(tmp_path: Path) -> None:
    engine = make_engine("sqlite", tmp_path)
    async with running(engine, mailbox_options({})) as mailbox:
        await fill(mailbox, "orders", 200, key="a")
        read, failures = engine.reads.next_of_key, [1]

        def failing(*args):
            if failures:
                failures.pop()
                raise Timeout("mailbox_read", budget_s=5.0)
            return read(*args)

        engine.reads.next_of_key = failing
        seen = []
        for _ in range(400):
            for message in (await mailbox.api.recv(Recv("orders", wait_ms=50))).messages:
                seen.append(int(message.payload))
                await mailbox.api.ack(Ack(message.msg_id, message.receipt))
            if len(seen) == 200:
                break
        await asyncio.sleep(0)

        assert seen == list(range(200))
        assert not failures
