"""Close discipline: idempotent, listed while open, and __del__ only tells."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest

from penstock.kernel.resource import Resource, open_resources
from penstock.testing.leaks import Leaks
from penstock.testing.session import run


class Socket(Resource):
    """Holds something that takes a moment to close."""

    def __init__(self, name: str = "socket") -> None:
        self.released = 0
        self.opened(name)

    async def _release(self) -> None:
        await asyncio.sleep(0.01)
        self.released += 1


async def test_what_is_open_is_listed_until_it_is_closed() -> None:
    before = open_resources()
    first, second = Socket("b"), Socket("a")
    assert sorted([*before, "a", "b"]) == open_resources()

    await first.close()
    async with second:
        assert not second.is_closed
    assert open_resources() == before
    assert (first.released, second.released) == (1, 1)


async def test_two_closers_release_once() -> None:
    socket = Socket()
    await asyncio.gather(socket.close(), socket.close())

    assert socket.released == 1


async def test_what_never_opened_owes_nothing() -> None:
    class Idle(Resource):
        async def _release(self) -> None:
            raise AssertionError("nothing was opened")

    idle = Idle()
    assert idle.is_closed
    await idle.close()
    assert idle.is_closed


async def test_a_resource_that_does_not_say_how_to_release_is_a_bug() -> None:
    class Careless(Resource):
        def __init__(self) -> None:
            self.opened("careless")

    with pytest.raises(RuntimeError, match="does not say how"):
        await Careless().close()


def test_del_says_so_and_does_nothing_else(caplog) -> None:
    gc.collect()  # what others have dropped is not told here
    socket = Socket("forgotten")
    with caplog.at_level(logging.DEBUG, logger="penstock.kernel"):
        del socket
        gc.collect()

    (record,) = [record for record in caplog.records if record.msg == "dropped_without_close"]
    assert record.fields["resource"] == "forgotten"


def test_a_test_that_leaves_one_open_fails() -> None:
    kept = []

    async def leave() -> None:
        kept.append(Socket("left open"))

    with pytest.raises(Leaks, match="left open"):
        run(leave())
    asyncio.run(kept[0].close())
