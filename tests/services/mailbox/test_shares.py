"""No tenant fills the backlog or the idem_keys for the others."""

from __future__ import annotations

import asyncio

import pytest

from penstock.contracts import mailbox as m
from penstock.contracts.call import Call
from penstock.contracts.passport import Claims
from penstock.kernel.errors import Busy
from penstock.services.mailbox.config import MailboxBounds
from penstock.testing.contracts.memory_tokens import TokenBook
from tests.services.mailbox.test_narrow_tokens import guarded

# Two ticks of the retention, which counts what each tenant has.
COUNTED_S = 1.1


def call_of(book: TokenBook, tenant: str) -> Call:
    now_s = book.now_s()
    claims = Claims(
        iss="test", aud=("*",), sub=tenant, iat=now_s, nbf=now_s, exp=now_s + 86_400, epoch=0, kid=book.kid,
        tid=f"t{book.number()}", alg="ed25519", tenant=tenant, class_="authed", caveats=(),
    )  # fmt: skip
    return Call(book.add(claims))


async def fill(api, call: Call, topic: str, count: int, payload: bytes = b"x") -> None:
    for start in range(0, count, 100):
        sends = tuple(m.Send(topic, payload) for _ in range(min(100, count - start)))
        await api.send_batch(m.SendBatch(sends), call)


async def test_tenant_above_its_share_of_the_backlog_is_refused_and_others_are_not() -> None:
    async with guarded(bounds=MailboxBounds(backlog_messages=1000)) as (mailbox, book):
        flood, other = call_of(book, "flood"), call_of(book, "other")
        for _ in range(2):
            await fill(mailbox.api, other, "quiet", 1)
        await fill(mailbox.api, flood, "noise", 600)
        await asyncio.sleep(COUNTED_S)
        with pytest.raises(Busy) as caught:
            await mailbox.api.send(m.Send("noise", b"x"), flood)
        assert caught.value.facts["limit"] == "tenant_share"
        (refused,) = (await mailbox.api.send_batch(m.SendBatch((m.Send("noise", b"x"),)), flood)).results
        assert refused.code == "busy"
        await fill(mailbox.api, other, "quiet", 100)
        # It takes what it has: then it may store again.
        for _ in range(2):
            got = (await mailbox.api.recv(m.Recv("noise", 100), flood)).messages
            await mailbox.api.ack_batch(m.AckBatch(tuple(m.Ack(each.msg_id, each.receipt) for each in got)), flood)
        await asyncio.sleep(COUNTED_S)

        await mailbox.api.send(m.Send("noise", b"x"), flood)
        assert (await mailbox.api.topic(m.GetTopic("quiet"), other)).ready == 102


async def test_tenant_alone_may_use_the_whole_backlog() -> None:
    async with guarded(bounds=MailboxBounds(backlog_messages=1000)) as (mailbox, book):
        alone = call_of(book, "alone")
        for _ in range(2):
            await fill(mailbox.api, alone, "mine", 450)
            await asyncio.sleep(COUNTED_S)

        assert not (await mailbox.api.send(m.Send("mine", b"x"), alone)).duplicate
        assert (await mailbox.api.topic(m.GetTopic("mine"), alone)).ready == 901


async def test_bytes_have_shares_too() -> None:
    async with guarded(bounds=MailboxBounds(backlog_bytes=1 << 20)) as (mailbox, book):
        flood, other = call_of(book, "flood"), call_of(book, "other")
        for _ in range(2):
            await fill(mailbox.api, other, "quiet", 1)
        for _ in range(6):
            await fill(mailbox.api, flood, "noise", 1, bytes(100_000))
        await asyncio.sleep(COUNTED_S)

        with pytest.raises(Busy):
            await mailbox.api.send(m.Send("noise", b"x"), flood)


async def test_tenant_cannot_claim_all_idem_keys_by_batches() -> None:
    async with guarded(dedup_entries=100) as (mailbox, book):
        flood, other = call_of(book, "flood"), call_of(book, "other")
        for topic, call in (("quiet", other), ("noise", flood)):
            await mailbox.api.send(m.Send(topic, b"x"), call)
        await mailbox.api.send(m.Send("quiet", b"x", idem_key="first"), other)
        sends = [m.Send("noise", b"x", idem_key=f"{number}") for number in range(60)]
        results = [
            result
            for start in range(0, 60, 20)
            for result in (await mailbox.api.send_batch(m.SendBatch(tuple(sends[start : start + 20])), flood)).results
        ]

        assert [result.code == "busy" for result in results] == [False] * 50 + [True] * 10


async def test_tenant_cannot_claim_all_idem_keys() -> None:
    async with guarded(dedup_entries=100) as (mailbox, book):
        flood, other = call_of(book, "flood"), call_of(book, "other")
        for topic, call in (("quiet", other), ("noise", flood)):
            # A topic counts for the tenant that is seen sending to it.
            await mailbox.api.send(m.Send(topic, b"x"), call)
        await mailbox.api.send(m.Send("quiet", b"x", idem_key="first"), other)
        for number in range(50):
            await mailbox.api.send(m.Send("noise", b"x", idem_key=f"{number}"), flood)
        with pytest.raises(Busy) as caught:
            await mailbox.api.send(m.Send("noise", b"x", idem_key="more"), flood)
        assert caught.value.facts["limit"] == "dedup_share"
        assert (await mailbox.api.send(m.Send("noise", b"x", idem_key="0"), flood)).duplicate
        for number in range(40):
            await mailbox.api.send(m.Send("quiet", b"x", idem_key=f"{number}"), other)
        await asyncio.sleep(700)

        assert not (await mailbox.api.send(m.Send("noise", b"x", idem_key="more"), flood)).duplicate
