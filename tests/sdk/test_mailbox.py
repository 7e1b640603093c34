"""What users call: every send has an idem_key, values are checked before they leave, and bytes when they arrive."""

from __future__ import annotations

import msgspec
import pytest

from penstock.client import new_message
from penstock.contracts import mailbox as m
from penstock.contracts.call import NOBODY, Call
from penstock.kernel.errors import Conflict, Integrity, Malformed, NotFound
from penstock.wire.ids import address_of
from tests.sdk.kit import TOPIC, world


async def test_every_send_has_an_idem_key_of_its_own() -> None:
    async with world() as w:
        await w.send(2)
        await w.mailbox.send_batch([m.Send(TOPIC, b"x"), new_message(TOPIC, "y")])
        keys = [message.idem_key for message in await w.mailbox.recv(TOPIC, max_messages=10)]

    assert len(set(keys)) == 4
    assert None not in keys


async def test_an_idem_key_that_was_given_is_kept() -> None:
    async with world() as w:
        first = await w.mailbox.send(TOPIC, "x", idem_key="mine")
        again = await w.mailbox.send(TOPIC, "x", idem_key="mine")
        [result] = await w.mailbox.send_batch([m.Send(TOPIC, b"x", idem_key="mine")])

        assert (again.msg_id, again.duplicate, result.duplicate) == (first.msg_id, True, True)
        with pytest.raises(Conflict):
            await w.mailbox.send(TOPIC, "y", idem_key="mine")


def test_a_message_is_sent_with_the_hash_of_its_bytes() -> None:
    message = new_message(TOPIC, "é", key="k", attrs={"a": "b"}, ttl_ms=5)

    assert (message.payload, message.payload_hash) == ("é".encode(), address_of("é".encode()))
    assert (message.key, message.attrs, message.ttl_ms, message.delay_ms) == ("k", {"a": "b"}, 5, None)


@pytest.mark.parametrize(
    "said",
    [{"key": ""}, {"delay_ms": -1}, {"ttl_ms": 0}, {"key": "k", "delay_ms": 1}, {"attrs": {"a": 1}},
    {"idem_key": "x" * 257}],
)  # fmt: skip
def test_a_wrong_value_never_leaves(said: dict[str, object]) -> None:
    with pytest.raises(Malformed):
        new_message(TOPIC, "x", **said)


async def test_a_message_changed_on_its_way_is_refused() -> None:
    class Changing:
        def __init__(self, mailbox) -> None:
            self._mailbox = mailbox

        async def recv(self, request: m.Recv, call: Call = NOBODY) -> m.Received:
            received = await self._mailbox.recv(request, call)
            changed = [msgspec.structs.replace(each, attrs={"evil": "1"}) for each in received.messages]
            return m.Received(tuple(changed))

    async with world() as w:
        await w.send(1)
        w.mailbox._mailbox = Changing(w.server)
        with pytest.raises(Integrity):
            await w.mailbox.recv(TOPIC)


async def test_all_pages_of_messages_are_walked_or_the_first_so_many() -> None:
    async with world() as w:
        sent = [(await w.mailbox.send(TOPIC, str(number))).msg_id for number in range(600)]
        seen = {
            limit: [each.msg_id async for each in w.mailbox.peek_all(TOPIC, limit=limit)]
            for limit in (None, 1, 256, 257, 512, 600, 601)
        }

        assert seen == {limit: sent[:limit] for limit in seen}
        assert [each async for each in w.mailbox.peek_all(TOPIC, "dlq")] == []
        with pytest.raises(Malformed):
            _ = [each async for each in w.mailbox.peek_all(TOPIC, limit=0)]


async def test_pages_are_asked_for_only_as_far_as_somebody_reads() -> None:
    async with world() as w:
        for number in range(300):
            await w.mailbox.send(TOPIC, str(number))
        asked = []
        inner = w.mailbox._mailbox.peek

        async def peek(request: m.Peek, call: Call = NOBODY) -> m.PeekedList:
            asked.append(request.limit)
            return await inner(request, call)

        w.mailbox._mailbox.peek = peek
        _ = [each async for each in w.mailbox.peek_all(TOPIC, limit=5)]
        _ = [each async for each in w.mailbox.peek_all(TOPIC, limit=290)]

        assert asked == [5, 256, 34]


async def test_a_short_page_with_a_cursor_is_not_the_last() -> None:
    class Short:
        """Gives one message a page, and a page without any, as a node does where payloads are large or leave."""

        def __init__(self, mailbox) -> None:
            self._mailbox = mailbox

        async def peek(self, request: m.Peek, call: Call = NOBODY) -> m.PeekedList:
            page = await self._mailbox.peek(msgspec.structs.replace(request, limit=1), call)
            return page if page.cursor != "2" else m.PeekedList((), "2")

    async with world() as w:
        sent = [(await w.mailbox.send(TOPIC, str(number))).msg_id for number in range(5)]
        w.mailbox._mailbox = Short(w.server)

        assert [each.msg_id async for each in w.mailbox.peek_all(TOPIC)] == [sent[0], *sent[2:]]
        assert [each.msg_id async for each in w.mailbox.peek_all(TOPIC, limit=3)] == [sent[0], *sent[2:4]]


async def test_one_message_is_looked_at_by_its_id() -> None:
    async with world() as w:
        sent = await w.mailbox.send(TOPIC, "x", delay_ms=1000)
        seen = await w.mailbox.peek_one(TOPIC, sent.msg_id, payload=True)
        page = await w.mailbox.peek_page(TOPIC, "delayed")

        assert (seen.state, seen.payload, page.cursor) == ("delayed", b"x", None)
        assert [each.msg_id for each in page.messages] == [sent.msg_id]
        for wrong in ("", "x" * 65, None):
            with pytest.raises(Malformed):
                await w.mailbox.peek_one(TOPIC, wrong)
        with pytest.raises(NotFound):
            await w.mailbox.peek_one("elsewhere", sent.msg_id)
        with pytest.raises(Malformed):
            await w.mailbox.peek_page(TOPIC, cursor="not a cursor")


async def test_all_pages_of_dead_letters_are_walked() -> None:
    async with world(max_attempts=1) as w:
        await w.send(250)
        for _ in range(25):
            for message in await w.mailbox.recv(TOPIC, max_messages=10):
                await w.mailbox.nack(message)
        letters = [letter.msg_id async for letter in w.mailbox.dead_letters(TOPIC)]

        assert (len(letters), len(set(letters))) == (250, 250)
        assert len((await w.mailbox.dlq(TOPIC, limit=7)).entries) == 7
