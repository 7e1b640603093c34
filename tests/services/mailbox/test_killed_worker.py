"""A shard_worker that is killed leaves nobody without an answer, whatever it was waiting for, and nothing behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.contracts.mailbox import Ack, Recv, Send
from penstock.kernel.errors import PenstockError
from penstock.services.mailbox.ids import read_msg_id
from tests.services.mailbox.invariants import check_all, settled
from tests.services.mailbox.lagging import Lagging, Steps, at_every_step, failing_engine, lagging
from tests.services.mailbox.worlds import RequestMeta, make_room

ENGINES = pytest.mark.parametrize("kind", ["memory", "sqlite"])
# Payloads are read again, and one worker does everything.
OPTIONS = {"ready_shards": 1, "bounds": {"cache_bytes": 1}}


def engine(kind: str, directory: Path):
    return failing_engine(None if kind == "memory" else directory)


async def killed_while_it_reads(mailbox, start) -> None:
    """Start a call, kill the worker while it waits for the disk, and see that the call is answered at once."""
    mailbox.reader.thread = Lagging(1, seconds=600.0)
    promise = start()
    await asyncio.sleep(0.01)
    assert not promise.done
    mailbox.reader.thread = Lagging(1)
    assert mailbox.supervisor.kill("shard_worker")
    await asyncio.sleep(0.01)

    assert promise.done
    assert isinstance(promise.result, PenstockError)
    assert promise.result.retryable


@ENGINES
async def test_receive_that_waits_for_its_payloads(kind: str, tmp_path: Path) -> None:
    async with lagging(engine=engine(kind, tmp_path), **OPTIONS) as mailbox:
        for number in range(2):
            await mailbox.api.send(Send("orders", b"payload %d" % number))
        await killed_while_it_reads(mailbox, lambda: mailbox.dispatcher.recv(Recv("orders", 2), RequestMeta()).promise)
        again = (await mailbox.api.recv(Recv("orders", 2, wait_ms=5000))).messages

        assert [(message.payload, message.attempt) for message in again] == [(b"payload 0", 1), (b"payload 1", 1)]
        await settled(mailbox)
        check_all(mailbox)


@ENGINES
async def test_repeated_ack_that_waits_for_what_became_of_its_message(kind: str, tmp_path: Path) -> None:
    async with lagging(engine=engine(kind, tmp_path), **OPTIONS) as mailbox:
        await mailbox.api.send(Send("orders", b"x"))
        (got,) = (await mailbox.api.recv(Recv("orders"))).messages
        ack = Ack(got.msg_id, got.receipt)
        await mailbox.api.ack(ack)
        name = read_msg_id(got.msg_id)
        await killed_while_it_reads(mailbox, lambda: mailbox.dispatcher.settle(ack, name, RequestMeta()))

        assert (await mailbox.api.ack(ack)).ok


@ENGINES
async def test_repeated_send_that_waits_for_the_claim_on_its_idem_key(kind: str, tmp_path: Path) -> None:
    async with lagging(engine=engine(kind, tmp_path), **OPTIONS) as mailbox:
        send = Send("orders", b"x", idem_key="one")
        first = await mailbox.api.send(send)
        await killed_while_it_reads(mailbox, lambda: mailbox.dispatcher.send(send, RequestMeta()))
        again = await mailbox.api.send(send)

        assert (again.msg_id, again.duplicate) == (first.msg_id, True)
        assert not mailbox.state.claims.pending


async def answer(call) -> bool:
    """Wait for an answer; tell whether it was one, and not an error that asks to try again."""
    task = asyncio.ensure_future(call)
    done, _ = await asyncio.wait({task}, timeout=30)
    assert done, "no answer"
    error = task.exception()
    assert error is None or (isinstance(error, PenstockError) and error.retryable), error
    return error is None


async def repeat(call) -> None:
    """Ask until there is an answer: the worker may be killed under the first one, not under the next."""
    for _ in range(3):
        if await answer(call()):
            return
    raise AssertionError("no answer although the worker was killed only once")


@pytest.mark.parametrize("what", ["recv", "ack", "send", "window", "key"])
def test_worker_killed_at_any_step_of_a_read_is_followed_by_one_that_answers(what: str) -> None:
    async def scenario(steps: Steps) -> None:
        async with lagging(2, **OPTIONS) as mailbox:
            for key in (None, None, "k", "k"):
                await mailbox.api.send(Send("orders", b"payload", key=key))
            first = Send("orders", b"x", idem_key="one")
            await mailbox.api.send(first)
            (got,) = (await mailbox.api.recv(Recv("orders", visibility_ms=600_000))).messages
            ack = Ack(got.msg_id, got.receipt)
            await mailbox.api.ack(ack)
            await settled(mailbox)
            if what in ("window", "key"):
                make_room(mailbox.state.shards, mailbox.state.ledger.bounds.window_messages)
            steps.begin(lambda: mailbox.supervisor.kill("shard_worker"))
            if what == "ack":
                await repeat(lambda: mailbox.api.ack(ack))
            elif what == "send":
                await repeat(lambda: mailbox.api.send(first))
            else:
                await repeat(lambda: mailbox.api.recv(Recv("orders", 10, visibility_ms=600_000, wait_ms=10_000)))
            steps.end()
            await asyncio.sleep(5)
            await settled(mailbox)

            assert not mailbox.state.claims.pending
            check_all(mailbox)
            assert await answer(mailbox.api.send(Send("orders", b"after", idem_key="two")))

    assert at_every_step(scenario) > 5
