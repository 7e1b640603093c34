"""The audit's writer: in order and whole, whatever the disk does, and short to walk at the next start."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from penstock.contracts import passport as p
from penstock.kernel.errors import Busy, DownstreamUnavailable, Integrity, PenstockError, Timeout
from penstock.services.passport import audit, audit_writer, store
from penstock.services.passport.store import FileStore
from penstock.testing import until
from penstock.wire.audit_chain import AuditChain
from tests.services.passport.kit import leave_behind, options, running


class FailingStore(FileStore):
    """A disk that fails, or hangs, when it is told to."""

    failing = 0
    hanging: threading.Event | None = None
    on_hang: Callable[[], object]

    def append_audit(self, lines: bytes, ends: audit.Walked, *, sync: bool) -> None:
        # Taken once: the test may put it away while we look.
        if (hanging := FailingStore.hanging) is not None:
            FailingStore.on_hang()
            hanging.wait(60)
        if FailingStore.failing:
            FailingStore.failing -= 1
            raise OSError("the disk is full")
        super().append_audit(lines, ends, sync=sync)


@pytest.fixture(autouse=True)
def failing_disk(monkeypatch):
    """Put the failing store in, healthy at first."""
    FailingStore.failing, FailingStore.hanging = 0, None
    monkeypatch.setattr("penstock.services.passport.service.FileStore", FailingStore)


def chain_of(folder) -> audit.Walked:
    return audit.walk((folder / "audit" / "passport.jsonl").read_bytes())


async def test_a_disk_that_failed_is_written_to_again_and_the_chain_is_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(audit_writer, "AGAIN_S", 0.01)
    async with running(options(tmp_path)) as world:
        FailingStore.failing = 3
        with pytest.raises(DownstreamUnavailable):
            await world.api.revoke(p.Revoke(tenant="a"), world.operator)
        for _ in range(20):
            await world.issue()
        await until(lambda: not FailingStore.failing)
        await world.api.revoke(p.Revoke(tenant="b"), world.operator)

        assert chain_of(tmp_path).records == 22
    assert chain_of(tmp_path).epoch == 2


async def test_a_disk_that_hangs_writes_every_line_once_and_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(audit_writer, "WRITE_S", 0.05)
    # It tries again when the disk goes on: a try that waits behind the one that hangs would hold time up.
    monkeypatch.setattr(audit_writer, "AGAIN_S", 10.0)
    loop = asyncio.get_running_loop()
    FailingStore.on_hang = lambda: loop.call_soon_threadsafe(leave_behind, loop)
    async with running(options(tmp_path)) as world:
        FailingStore.hanging = threading.Event()
        for tenant in "abc":
            with pytest.raises((Timeout, DownstreamUnavailable)):
                await world.api.revoke(p.Revoke(tenant=tenant), world.operator)
            await world.issue()
        FailingStore.hanging.set()
        FailingStore.hanging = None
        await until((tmp_path / "audit" / "passport.jsonl").exists)
        await until(lambda: chain_of(tmp_path).records == 6)

        assert chain_of(tmp_path).records == 6
    async with running(options(tmp_path)) as world:
        assert world.service.book.state.current == 3


async def test_what_cannot_be_recorded_is_not_done_and_the_chain_does_not_move(tmp_path):
    async with running(options(tmp_path)) as world:
        trail = world.service.trail
        head = trail.head
        for _ in range(trail.lines.capacity):
            trail.lines.try_send(audit_writer.AuditLine(b"", audit.START, None))
        with pytest.raises(Busy):
            trail.note("issue", tid="x")

        assert trail.head == head
        trail.lines.abandon()


async def test_a_long_audit_is_walked_from_its_mark(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_WALKED_WHOLE_BYTES", 0)
    monkeypatch.setattr(audit_writer, "MARK_RECORDS", 4)
    async with running(options(tmp_path)) as world:
        for _ in range(9):
            await world.issue()
        head = world.service.trail.head
    file = tmp_path / "audit" / "passport.jsonl"
    mark = audit.read_mark(file.with_suffix(".mark"))
    assert (mark.ends.records, mark.ends.head, mark.size) == (9, head, file.stat().st_size)

    async with running(options(tmp_path)) as world:
        await world.issue()
    assert chain_of(tmp_path).records == 10
    file.write_bytes(file.read_bytes()[:-1] + b" \n")
    with pytest.raises(Integrity):
        async with running(options(tmp_path)):
            pytest.fail("it started")


@pytest.mark.parametrize("mark", [b"", b"{", b'{"ends":{"records":1,"head":"x"},"size":"y"}', b"\xff"])
async def test_a_torn_mark_costs_a_longer_walk_and_nothing_else(tmp_path, mark, monkeypatch):
    monkeypatch.setattr(store, "_WALKED_WHOLE_BYTES", 0)
    async with running(options(tmp_path)) as world:
        await world.issue()
    (tmp_path / "audit" / "passport.mark").write_bytes(mark)
    async with running(options(tmp_path)) as world:
        await world.issue()

    assert chain_of(tmp_path).records == 2


@pytest.mark.parametrize("tail", [b"", b"{", b'{"n":4', b"x" * 200_000])
async def test_a_tail_that_was_never_finished_is_cut_off(tmp_path, tail):
    async with running(options(tmp_path)) as world:
        for _ in range(3):
            await world.issue()
    file = tmp_path / "audit" / "passport.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole + tail)
    async with running(options(tmp_path)):
        assert file.read_bytes() == whole


async def test_an_audit_cut_short_at_a_line_refuses_to_start(tmp_path):
    async with running(options(tmp_path)) as world:
        for _ in range(3):
            await world.issue()
    file = tmp_path / "audit" / "passport.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:2]))

    with pytest.raises(PenstockError):
        async with running(options(tmp_path)):
            pytest.fail("it started")


async def test_a_restart_keeps_the_last_records_before_the_operator(tmp_path):
    async with running(options(tmp_path)) as world:
        for name in ("a", "b", "c"):
            await world.api.revoke(p.Revoke(tenant=name), world.operator)
        before = list(world.service.trail.recent)
    async with running(options(tmp_path)) as world:
        assert list(world.service.trail.recent)[: len(before)] == before
        assert [each.facts["value"] for each in before if each.action == "revoke"] == ["a", "b", "c"]
        await world.api.revoke(p.Revoke(tenant="d"), world.operator)
        assert world.service.trail.recent[-1].facts["value"] == "d"


def test_a_record_that_cannot_be_read_hides_only_those_before_it():
    chain = AuditChain()
    lines = [chain.add("rotate", n, {"kid": str(n)}) for n in range(5)]
    lines[1] = b"not a record\n"

    assert [n for n, *_ in audit.last_records(b"".join(lines), 50)] == [3, 4, 5]
    assert [n for n, *_ in audit.last_records(b"".join(lines), 2)] == [4, 5]
