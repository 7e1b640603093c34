"""Chaos: children die at any moment, services behind answer with errors, streams are cut; everybody is answered."""

from __future__ import annotations

import asyncio

import pytest

from penstock.contracts import storage as s
from penstock.contracts.call import NOBODY
from penstock.kernel.clock import SYSTEM
from penstock.kernel.errors import DownstreamUnavailable
from penstock.services.interop.brownout import BrownoutLimits
from penstock.testing import until as patiently
from penstock.testing.contracts.memory_mailbox import MemoryMailbox
from penstock.testing.contracts.memory_storage import MemoryStorage
from penstock.wire.ids import address_of
from tests.services.interop.test_service import JSON, OCTETS, Stuck, live
from tests.services.interop.worlds import bridge, until

pytestmark = pytest.mark.real_loop

CHILDREN = ("audit_writer", "authority", "sentinel", "topic_keeper", "worker", "listener")


@pytest.mark.parametrize("child", CHILDREN)
async def test_killed_child_leaves_nobody_waiting_and_comes_back(child):
    mailbox = Stuck()
    async with bridge(mailbox=mailbox, workers=2) as world:
        asked = [asyncio.ensure_future(world.http.hook("github", live("github", b"%d" % n))) for n in range(4)]
        await until(lambda: mailbox.waiting)
        assert [each for each in world.supervisor.children if each.spec.name == child and each.kill()]
        await until(lambda: world.count("service_restarts_total", task=child))
        if child == "worker":
            await until(lambda: any(each.done() for each in asked))
        early = {each.result().status for each in asked if each.done() and not each.exception()}
        mailbox.go.set()
        await asyncio.wait(asked)
        answers = [each.exception() or each.result() for each in asked]
        await until(lambda: world.inventory.health.verdict().ready)
        world.http.port = world.service.listener.port
        after = [(await world.http.hook("github", live("github", b"%d" % n))).json() for n in range(4)]
        count = len(mailbox.state.messages)

    # A listener that dies takes its connections with it; everybody else is answered.
    statuses = {getattr(answer, "status", 0) for answer in answers}
    assert statuses <= ({0, 202, 503} if child == "listener" else {202, 500, 503, 504})
    # The webhooks of a killed worker are answered when it dies, not when their deadline passes.
    assert child != "worker" or 500 in early
    # What was stored before the kill is what the provider's retry finds.
    assert ([answer["accepted"] for answer in after], count) == ([True] * 4, 4)


class Bursting(MemoryMailbox):
    """A mailbox that fails while it is told to."""

    ill = False

    async def send_batch(self, request, call=NOBODY):
        if self.ill:
            raise DownstreamUnavailable("told to")
        return await super().send_batch(request, call)


async def test_burst_of_errors_behind_opens_the_breaker_turns_brownout_on_and_leaves_reads_alone():
    mailbox = Bursting(SYSTEM)
    async with bridge(mailbox=mailbox, rps=0, brownout=BrownoutLimits(samples_min=10)) as world:
        await world.http.ask("POST", "/put", b"x", OCTETS)
        await world.http.hook("github", live("github", b"before"))
        mailbox.ill = True
        ill = [(await world.http.hook("github", live("github", b"%d" % n))).status for n in range(20)]
        world.service.sentinel.look()
        reads = [(await world.http.ask("GET", f"/o/{address_of(b'x')}")).status for _ in range(5)]
        shed = await world.http.ask("POST", "/put", b"y", OCTETS)
        ready, read = await world.http.ask("GET", "/readyz"), await world.http.ask("GET", "/readyz/read")
        mailbox.ill = False
        # Half open after about a second: the first good answer closes it.
        await _until_taken(world)
        again = (await world.http.hook("github", live("github", b"before"))).json()
        count = len(mailbox.state.messages)

    assert set(ill) == {503}
    assert (reads, shed.status, shed.json()["code"]) == ([200] * 5, 503, "backpressure")
    assert (ready.status, read.status) == (503, 200)
    # Nothing was claimed by the failures, and what was there before is a duplicate still.
    assert (again["duplicate"], count) == (True, 2)


async def _until_taken(world):
    async def taken():
        return (await world.http.hook("github", live("github", b"after"))).status == 202

    await patiently(taken, every_s=0.05)


class CutStore(MemoryStorage):
    """A store that shows when a stream has begun, and counts streams that were thrown away."""

    begun = 0
    aborted = 0

    async def upload_append(self, request: s.UploadAppend, call=NOBODY) -> s.Upload:
        self.begun += 1
        return await super().upload_append(request, call)

    async def upload_abort(self, request: s.UploadAbort, call=NOBODY) -> s.Done:
        self.aborted += 1
        return await super().upload_abort(request, call)


async def test_worker_killed_in_the_middle_of_a_stream_throws_it_away_and_the_next_put_is_taken():
    storage = CutStore()
    async with bridge(storage=storage, workers=2) as world:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.http.port)
        head = b"POST /put HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
        writer.write(head + b"Content-Length: 1000000\r\n\r\n" + bytes(300_000))
        await until(lambda: storage.begun)
        for child in world.supervisor.children:
            if child.spec.name == "worker":
                child.kill()
        answer = await reader.read(200)
        writer.close()
        await until(lambda: storage.aborted)
        await until(lambda: world.count("service_restarts_total", task="worker") >= 2)
        after = await world.http.ask("POST", "/put", b'{"payload":"Zg=="}', JSON)

    assert answer[9:12] in (b"500", b"503")
    assert (storage.aborted, after.status) == (1, 202)
