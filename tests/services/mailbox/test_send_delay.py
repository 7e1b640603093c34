"""How long senders wait is counted where messages are stored: each stored message once, and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from penstock.contracts import mailbox as m
from penstock.kernel.deadline import Deadline, use_deadline
from penstock.kernel.errors import Conflict, OverLimit
from penstock.kernel.metrics import Histogram
from penstock.services.mailbox.engines.memory import MemoryEngine
from tests.services.mailbox.worlds import mailbox_options, running


def delays(service) -> Histogram:
    families = {family.name: family for family in service.inventory.metrics.families()}
    (found,) = families["send_seconds"].series.values()
    return found


def waiting(already_s: float = 0.0) -> use_deadline:
    """Send as a caller that has waited for so long."""
    now = asyncio.get_running_loop().time()
    return use_deadline(Deadline(now + 5.0, 5.0, now - already_s))


@pytest.mark.parametrize("send", [m.Send("t", b"x"), m.Send("t", b"x", key="k"), m.Send("t", b"x", idem_key="i")])
async def test_the_wait_begins_with_the_request_and_ends_with_the_commit(send: m.Send) -> None:
    async with running(MemoryEngine(bytes(32)), mailbox_options({})) as service:
        with waiting(already_s=0.25):
            await service.api.send(send)

        assert (delays(service).count, delays(service).total) == (1, pytest.approx(0.25))


async def test_each_message_of_a_batch_counts_once_whatever_it_is_stored_as() -> None:
    batch = m.SendBatch((
        *(m.Send("t", b"%d" % number) for number in range(3)),
        *(m.Send("t", b"%d" % number, idem_key=f"i{number}") for number in range(3)),
        m.Send("t", b"keyed", key="k"),
        m.Send("other", b"x", delay_ms=1000),
    ))  # fmt: skip
    async with running(MemoryEngine(bytes(32)), mailbox_options({})) as service:
        with waiting():
            await service.api.send_batch(batch)

        assert delays(service).count == service.state.ledger.messages == 8


async def test_what_is_not_stored_does_not_count() -> None:
    once = m.Send("t", b"x", idem_key="i")
    async with running(MemoryEngine(bytes(32)), mailbox_options({"payload_bytes_max": 1024})) as service:
        with waiting():
            await service.api.send(once)
            assert (await service.api.send(once)).duplicate
            with pytest.raises(Conflict):
                await service.api.send(m.Send("t", b"y", idem_key="i"))
            with pytest.raises(OverLimit):
                await service.api.send(m.Send("t", b"x" * 1025))

        assert delays(service).count == 1


async def test_a_dead_letter_that_is_sent_back_has_nobody_who_waits() -> None:
    async with running(MemoryEngine(bytes(32)), mailbox_options({"max_attempts": 1})) as service:
        with waiting():
            await service.api.send(m.Send("t", b"x"))
        (got,) = (await service.api.recv(m.Recv("t"))).messages
        await service.api.nack(m.Nack(got.msg_id, got.receipt))
        await service.api.reprocess(m.Reprocess("t", 10))
        await asyncio.sleep(1.0)

        assert service.inventory.metrics.value("dlq_redriven_total") == 1
        assert delays(service).count == 1
