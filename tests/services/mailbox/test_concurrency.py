"""Many at once: producers with one idem_key, consumers of one key, leases that lapse."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.contracts.mailbox import Ack, GetDlq, Recv, Reprocess, Send
from tests.services.mailbox.worlds import mailbox_options, make_engine, running


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
class TestMany:
    async def test_two_producers_with_one_idem_key_make_one_message(self, kind: str, tmp_path: Path) -> None:
        engine = make_engine(kind, tmp_path)
        async with running(engine, mailbox_options({})) as mailbox:
            # Other keys, other shards, other workers: the claim is one all the same.
            first = [mailbox.api.send(Send("orders", b"x", idem_key="i")) for _ in range(20)]
            sent = await asyncio.gather(*first)
            assert len({each.msg_id for each in sent}) == 1
            assert sum(not each.duplicate for each in sent) == 1
            other = [mailbox.api.send(Send("orders", b"x", idem_key="j", key=f"k{n}")) for n in range(8)]
            outcome = await asyncio.gather(*other, return_exceptions=True)
            assert sum(not isinstance(each, Exception) for each in outcome) == 1
        async with running(engine, mailbox_options({})) as mailbox:
            again = await mailbox.api.send(Send("orders", b"x", idem_key="i"))

            assert (again.msg_id, again.duplicate) == (sent[0].msg_id, True)

    async def test_keys_stay_in_order_under_eight_consumers(self, kind: str, tmp_path: Path) -> None:
        async with running(make_engine(kind, tmp_path), mailbox_options({})) as mailbox:
            for number in range(200):
                await mailbox.api.send(Send("orders", b"%d" % number, key=f"k{number % 7}"))
            seen: dict[str, list[int]] = {}

            async def consume(pace: float) -> None:
                while got := (await mailbox.api.recv(Recv("orders", 3, wait_ms=500))).messages:
                    for message in got:
                        seen.setdefault(message.key, []).append(int(message.payload))
                    await asyncio.sleep(pace)
                    for message in got:
                        await mailbox.api.ack(Ack(message.msg_id, message.receipt))

            await asyncio.gather(*(consume(0.001 * number) for number in range(8)))

            assert sum(map(len, seen.values())) == 200
            assert all(numbers == sorted(numbers) for numbers in seen.values())

    async def test_lapsed_lease_comes_back_never_early_and_within_100_ms(self, kind: str, tmp_path: Path) -> None:
        async with running(make_engine(kind, tmp_path), mailbox_options({})) as mailbox:
            loop = asyncio.get_running_loop()
            for visibility_ms in (250, 333, 700, 1501):
                await mailbox.api.send(Send("orders", b"x"))
                (first,) = (await mailbox.api.recv(Recv("orders", visibility_ms=visibility_ms))).messages
                leased = loop.time()
                (again,) = (await mailbox.api.recv(Recv("orders", wait_ms=5000))).messages
                late = loop.time() - leased - visibility_ms / 1000
                assert again.msg_id == first.msg_id
                await mailbox.api.ack(Ack(again.msg_id, again.receipt))

                assert -1e-6 <= late <= 0.1

    async def test_poison_is_dead_after_five_attempts_and_comes_back_by_reprocess(
        self, kind: str, tmp_path: Path
    ) -> None:
        async with running(make_engine(kind, tmp_path), mailbox_options({})) as mailbox:
            await mailbox.api.send(Send("orders", b"poison"))
            for attempt in range(1, 6):
                (got,) = (await mailbox.api.recv(Recv("orders", visibility_ms=250, wait_ms=1000))).messages
                assert got.attempt == attempt
            await asyncio.sleep(1)
            (dead,) = (await mailbox.api.dlq(GetDlq())).entries
            assert (dead.reason, len(dead.history)) == ("visibility", 5)
            await mailbox.api.reprocess(Reprocess("orders", 1))
            (back,) = (await mailbox.api.recv(Recv("orders", wait_ms=1000))).messages

            assert (back.payload, back.attempt, back.redriven_from) == (b"poison", 1, dead.msg_id)
