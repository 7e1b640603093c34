"""svc-passport running under its supervisor, in RAM or in a directory, with fakes behind it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.capability.trust import KeyRecord
from penstock.config import Sources, listener_settings, load, node_schema
from penstock.contracts import passport as p
from penstock.contracts.call import Call
from penstock.contracts.capability import RequestContext
from penstock.kernel.clock import LoopClock
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from penstock.services.passport.config import TABLE, PassportOptions
from penstock.services.passport.kms import KmsFailed
from penstock.services.passport.kms_local import LocalKms
from penstock.services.passport.service import SERVICE, PassportService
from penstock.testing.loop import VirtualLoop

START_S = 1_800_000_000.0


def options(data_dir: Path | None = None, *, sockets: bool = False, **fields) -> PassportOptions:
    """Return the default options, on a port the system chooses or with no socket at all."""
    settings = load(node_schema(TABLE), Sources(sets=("node.ephemeral_ports=true",)))
    chosen = replace(PassportOptions.from_settings(settings), data_dir=data_dir)
    listener = listener_settings(settings, "passport")
    return replace(chosen, **{"listener": listener if sockets else replace(listener, host=None), **fields})


def leave_behind(loop: VirtualLoop) -> None:
    """Let virtual time go on without the thread that hangs now; those that come later are waited for as ever."""
    patience_s, loop.thread_patience_s = loop.thread_patience_s, 0.5
    loop.call_later(1e-9, setattr, loop, "thread_patience_s", patience_s)


@contextmanager
def hanging(kms: FakeKms) -> Iterator[None]:
    """Have the key store hang, and virtual time go on soon after it does, as a real clock would at once.

    Not before: other threads, a disk's for one, are waited for as long as they need.
    """
    loop = asyncio.get_running_loop()
    patience_s = loop.thread_patience_s
    kms.on_hang = lambda: loop.call_soon_threadsafe(setattr, loop, "thread_patience_s", 0.5)
    kms.hanging = threading.Event()
    try:
        yield
    finally:
        loop.thread_patience_s = patience_s


class FakeKms:
    """A key store that hangs, fails or is slow when told to; its keys are real."""

    inline = False

    def __init__(self) -> None:
        self.real = LocalKms()
        self.calls = 0
        self.failing = False
        # While set, calls wait for it: a module that does not answer.
        self.hanging: threading.Event | None = None
        self.on_hang: Callable[[], object] = lambda: None

    def open(self, algs: tuple[str, ...], now_s: int) -> None:
        self.real.open(algs, now_s)

    def sign(self, kid: str, message: bytes) -> bytes:
        self.calls += 1
        # Taken once: the test may put it away while we look.
        if (hanging := self.hanging) is not None:
            self.on_hang()
            hanging.wait(timeout=60)
        if self.failing:
            raise KmsFailed("told to")
        return self.real.sign(kid, message)

    def rotate(self, algs: tuple[str, ...], now_s: int) -> None:
        if self.failing:
            raise KmsFailed("told to")
        self.real.rotate(algs, now_s)

    def public_keys(self) -> tuple[KeyRecord, ...]:
        return self.real.public_keys()

    def close(self) -> None:
        self.real.close()


@dataclass
class Running:
    """A started service."""

    service: PassportService
    supervisor: Supervisor
    inventory: Inventory

    @property
    def api(self):
        return self.service.api

    @property
    def operator_token(self) -> str:
        return self.service.book.operator_token

    @property
    def operator(self) -> Call:
        return Call(self.operator_token)

    @property
    def port(self) -> int:
        return self.service.listener.port

    async def issue(self, *caveats: str, **fields) -> str:
        request = p.Issue("alice", "svc-mailbox", caveats=caveats, **fields)
        return (await self.api.issue(request, self.operator)).token

    async def verdict(self, token: str, **context: str) -> p.Verified:
        return await self.api.verify(p.Verify(token, RequestContext(**context)))


@asynccontextmanager
async def running(opts: PassportOptions | None = None, **around) -> AsyncIterator[Running]:
    """Start the service, hand it out, drain it."""
    inventory = Inventory(SERVICE, LoopClock(START_S))
    service = PassportService(inventory, opts or options(), **around)
    supervisor = Supervisor(inventory, service.children(), service.supervision())
    await supervisor.start()
    try:
        yield Running(service, supervisor, inventory)
    finally:
        await supervisor.drain()
        await service.close()
