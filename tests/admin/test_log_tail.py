"""The log on the page: the last lines, by level and text, redacted like the log itself."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from penstock.admin.log_tail import LINES_KEPT, LogQuery, LogTail
from penstock.kernel.inventory import Inventory
from penstock.kernel.log import Log, configure
from tests.net.server.listener_kit import get, serving


@pytest.fixture
def tail() -> Iterator[LogTail]:
    tail = LogTail(Inventory("node"))
    logger = logging.getLogger("penstock")
    before = logger.level
    logger.setLevel(logging.DEBUG)
    tail.attach()
    yield tail
    tail.detach()
    logger.setLevel(before)


def test_lines_carry_their_fields_and_no_secret(tail: LogTail) -> None:
    Log("svc-x").info("send.accepted", corr_id="c-1", token="fake-secret")

    (line,) = tail.lines(LogQuery()).lines
    assert (line.service, line.event, line.level) == ("svc-x", "send.accepted", "info")
    assert line.fields == {"corr_id": "c-1", "token": "[redacted]"}


def test_level_text_and_place_choose_the_lines(tail: LogTail) -> None:
    log = Log("svc-x")
    log.info("one", corr_id="abc")
    log.warning("two", corr_id="DEF")
    log.error("three", corr_id="abc")

    def events(query: LogQuery) -> list[str]:
        return [line.event for line in tail.lines(query).lines]

    assert events(LogQuery(text="abc")) == ["one", "three"]
    assert events(LogQuery(text="def")) == ["two"]
    assert events(LogQuery(level="warning")) == ["two", "three"]
    assert events(LogQuery(after=2)) == ["three"]
    assert tail.lines(LogQuery()).last == 3


def test_the_oldest_lines_are_forgotten(tail: LogTail) -> None:
    for number in range(LINES_KEPT + 5):
        Log("svc-x").info("tick", number=number)

    shown = tail.lines(LogQuery()).lines
    assert shown[-1].fields == {"number": str(LINES_KEPT + 4)}
    assert tail.lines(LogQuery(text="number=4 ")).lines == []


def test_a_reload_that_replaces_the_handlers_does_not_end_the_tail(tail: LogTail) -> None:
    configure("json", "info")
    tail.attach()
    Log("svc-x").info("after")

    assert [line.event for line in tail.lines(LogQuery()).lines] == ["after"]


@pytest.mark.parametrize(("query", "status"), [("", 200), ("?level=loud", 400), ("?after=x", 400)])
async def test_the_route_answers_or_says_what_is_wrong(tail: LogTail, query: str, status: int) -> None:
    async with serving(tail.routes()) as site:
        client = site.connect()
        client.send(get(f"/logs{query}"))

        assert (await client.answer()).status == status
