"""Pages of large messages: looking at them takes no memory for what is not shown, and misses none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.contracts.mailbox import GetDlq, Nack, Peek, Recv, Reprocess, Send
from penstock.services.mailbox.engines.engine import DeadPage
from penstock.services.mailbox.engines.sqlite_reads import PEEK_BYTES_MAX
from tests.services.mailbox.worlds import PatientOperator, mailbox_options, make_engine, running

LARGE = 600 << 10
COUNT = 12


async def bury(mailbox, count: int) -> None:
    for number in range(count):
        await mailbox.api.send(Send("orders", b"%03d" % number + bytes(LARGE)))
        (message,) = (await mailbox.api.recv(Recv("orders", wait_ms=1000))).messages
        assert (await mailbox.api.nack(Nack(message.msg_id, message.receipt))).dead_lettered


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_large_dead_letters_are_all_listed_and_all_sent_back(kind: str, tmp_path: Path) -> None:
    async with running(make_engine(kind, tmp_path), mailbox_options({"max_attempts": 1})) as mailbox:
        await bury(mailbox, COUNT)
        first = await mailbox.api.dlq(GetDlq(limit=COUNT - 1))
        second = await mailbox.api.dlq(GetDlq(limit=COUNT - 1, cursor=first.cursor))
        assert (len(first.entries), len(second.entries), second.cursor) == (COUNT - 1, 1, None)
        answer = await PatientOperator(mailbox).reprocess(Reprocess("orders", 100))
        back: list[bytes] = []
        while len(back) < COUNT:
            received = await mailbox.api.recv(Recv("orders", COUNT, wait_ms=1000))
            back += [message.payload[:3] for message in received.messages]

        assert answer.accepted == COUNT
        assert sorted(back) == [b"%03d" % number for number in range(COUNT)]


@pytest.mark.parametrize("state", ["ready", "dlq"])
async def test_short_pages_of_large_messages_lead_to_all_of_them(state: str, tmp_path: Path) -> None:
    async with running(make_engine("sqlite", tmp_path), mailbox_options({"max_attempts": 1})) as mailbox:
        if state == "dlq":
            await bury(mailbox, COUNT)
        else:
            for number in range(COUNT):
                await mailbox.api.send(Send("orders", b"%03d" % number + bytes(LARGE)))
        pages = [await mailbox.api.peek(Peek("orders", state, 256, payload=True))]
        while pages[-1].cursor is not None:
            pages.append(await mailbox.api.peek(Peek("orders", state, 256, payload=True, cursor=pages[-1].cursor)))
        shown = [each for page in pages for each in page.messages]

        assert [each.payload[:3] for each in shown if each.payload] == [b"%03d" % number for number in range(COUNT)]
        assert max(sum(each.size for each in page.messages) for page in pages) <= PEEK_BYTES_MAX
        # Nothing but the size ends a page before the last.
        assert [len(page.messages) for page in pages] == [PEEK_BYTES_MAX // LARGE] * 2


async def test_page_of_dead_letters_holds_no_more_payload_than_an_answer(tmp_path: Path) -> None:
    engine = make_engine("sqlite", tmp_path)
    async with running(engine, mailbox_options({"max_attempts": 1})) as mailbox:
        await bury(mailbox, COUNT)
        page = DeadPage(None, None, 0, 256)
        whole = engine.reads.dead(page)
        light = engine.reads.dead(replace(page, payloads=False))

        assert 0 < sum(len(row.payload) for row, _ in whole) <= PEEK_BYTES_MAX
        assert (len(light), sum(len(row.payload) for row, _ in light)) == (COUNT, 0)
        assert {row.size for row, _ in light} == {LARGE + 3}
