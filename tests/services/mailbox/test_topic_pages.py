"""Lists of topics are read in pages: whole, in order, and never in one long step."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.contracts.call import Call
from penstock.contracts.mailbox import GetTopics, Send, SendBatch
from penstock.services.mailbox.engines.memory import MemoryEngine
from penstock.services.mailbox.shards import topic_names
from penstock.services.mailbox.shards.topic_names import TopicNames
from tests.services.mailbox.process import Http
from tests.services.mailbox.test_narrow_tokens import LISTENER, guarded, token
from tests.services.mailbox.worlds import mailbox_options, running

NAMES = st.text("ab/", min_size=1, max_size=4)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.booleans(), NAMES)), st.text("ab/", max_size=4), st.text("ab/", max_size=2))
def test_names_are_an_ordered_set_however_they_came(steps: list[tuple[bool, str]], after: str, prefix: str) -> None:
    names, model = TopicNames(), set()
    before, topic_names._BLOCK_MAX = topic_names._BLOCK_MAX, 4
    try:
        for added, name in steps:
            if not added:
                names.discard(name)
                model.discard(name)
            elif name not in model:
                names.add(name)
                model.add(name)
        expected = sorted(name for name in model if name > after and name.startswith(prefix))

        assert names.page("", "", 1000) == sorted(model)
        for limit in (1, 3, 1000):
            assert names.page(after, prefix, limit) == expected[:limit]
        assert len(names) == len(model)
    finally:
        topic_names._BLOCK_MAX = before


async def test_pages_show_every_topic_once_though_some_are_forgotten_meanwhile() -> None:
    async with running(MemoryEngine(bytes(32)), mailbox_options({})) as mailbox:
        wanted = [f"t/{number:03}" for number in range(250)]
        await mailbox.api.send_batch(SendBatch(tuple(Send(name, b"x") for name in wanted)))
        await mailbox.api.send_batch(SendBatch((Send("other", b"x"),)))
        pages, cursor = [], None
        while not pages or cursor is not None:
            page = await mailbox.api.topics(GetTopics(110, cursor, "t/"))
            pages.append([each.topic for each in page.topics])
            cursor = page.cursor
            # Somebody asks for a topic that is nowhere, and it is forgotten at once.
            mailbox.state.ledger.forget_idle(mailbox.state.ledger.topic("t/0500"))

        assert [len(page) for page in pages] == [110, 110, 30]
        assert [name for page in pages for name in page] == wanted
        assert (await mailbox.api.topics(GetTopics(1000))).cursor is None
        assert (await mailbox.api.topics(GetTopics(250, None, "t/"))).cursor is None


async def test_token_that_covers_one_of_many_topics_gets_short_pages_and_a_cursor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.services.mailbox.api._LOOK", 10)
    monkeypatch.setattr("penstock.services.mailbox.api._LOOKS_MAX", 2)
    async with guarded() as (service, book):
        for number in range(60):
            await service.api.send(Send(f"other/{number:02}", b"x"), Call(token(book)))
        narrow = Call(token(book, "op=send,recv", "topic=other/59"))
        pages, cursor = [], None
        while not pages or cursor is not None:
            page = await service.api.topics(GetTopics(cursor=cursor), narrow)
            pages.append([each.topic for each in page.topics])
            cursor = page.cursor

        assert pages == [[], [], ["other/59"]]


@pytest.mark.real_loop
async def test_route_reads_limit_cursor_and_prefix_and_says_what_is_wrong_with_them() -> None:
    async with guarded(LISTENER) as (service, book):
        bearer = f"Authorization: Bearer {token(book)}\r\n"
        for name in ("a", "b/1", "b/2", "c"):
            await service.api.send(Send(name, b"x"), Call(token(book)))
        http = Http(service.listener.port)

        async def listed(query: str) -> tuple[list[str], str | None]:
            status, body = await http.request("GET", f"/v1/topics{query}", b"", bearer)
            assert status == 200, body
            return [each["topic"] for each in body["topics"]], body["cursor"]

        assert await listed("") == (["a", "b/1", "b/2", "c"], None)
        assert await listed("?limit=2") == (["a", "b/1"], "b/1")
        assert await listed("?limit=2&cursor=b%2F1") == (["b/2", "c"], None)
        assert await listed("?prefix=b/&limit=1") == (["b/1"], "b/1")
        assert await listed("?prefix=b/&limit=1&cursor=b/1") == (["b/2"], None)
        assert await listed("?prefix=nothing") == ([], None)
        for wrong in ("limit=0", "limit=1001", "limit=x", "cursor=", "cursor=a%20b", "prefix=%00", "surprise=1"):
            status, body = await http.request("GET", f"/v1/topics?{wrong}", b"", bearer)
            assert (status, body["code"]) == (400, "malformed"), wrong
        http.close()
