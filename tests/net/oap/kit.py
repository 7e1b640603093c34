"""A small contract and an endpoint for it, over memory or over a real Unix socket, for the tests of OAP/1."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Self

import msgspec

from penstock.contracts.call import Call
from penstock.contracts.method import EventType, Method, Methods
from penstock.kernel.clock import LoopClock
from penstock.kernel.deadline import current_deadline
from penstock.kernel.errors import Conflict, Integrity
from penstock.kernel.inventory import Inventory
from penstock.net.oap.calling import OapClientConnection
from penstock.net.oap.client import OapClient, OapClientOptions
from penstock.net.oap.server import OapServer
from penstock.net.oap.service import OapServerOptions, OapService
from penstock.testing.line import Weather
from penstock.testing.transport import MemoryTransport, memory_pair


class Ask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str = ""
    size: int = 0
    data: bytes = b""


class Told(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str = ""
    data: bytes = b""


class Rang(msgspec.Struct, frozen=True):
    bell: int


def no_poison(value: Ask | Told) -> None:
    if value.text == "poison":
        raise Integrity("poisoned")


ECHO = Methods(
    100,
    [
        (1, "echo", Ask, Told),
        (2, "later", Ask, Told),
        (3, "task", Ask, Told),
        (4, "conflict", Ask, Told),
        (5, "bug", Ask, Told),
        (6, "call", Ask, Told),
        Method(7, "again", Ask, Told, idempotent=True),
        Method(8, "checked", Ask, Told, check_request=no_poison, check_answer=no_poison),
        (9, "nonsense", Ask, Told),
        (10, "bug_in_task", Ask, Told),
    ],
    service="echo",
    events=[EventType(1, "Rang", Rang)],
)


class EchoService:
    """Answers at once, by a future the test holds, by a task, or wrongly, as the method says."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.calls: list[Call] = []
        self.remaining_s: list[float] = []
        self.replies: list[asyncio.Future[Told]] = []
        self.events: list[object] = []
        self.gate = asyncio.Event()
        self.cancelled = 0

    def handle(self, method: Method, value: Ask, call: Call) -> object:
        self.seen.append(method.name)
        self.calls.append(call)
        deadline = current_deadline()
        assert deadline is not None
        self.remaining_s.append(deadline.remaining(asyncio.get_running_loop().time()))
        return getattr(self, f"do_{method.name}")(value)

    def do_echo(self, value: Ask) -> Told:
        return Told(value.text, value.data + bytes(value.size))

    do_again = do_checked = do_call = do_echo

    def do_later(self, value: Ask) -> asyncio.Future[Told]:
        self.replies.append(asyncio.get_running_loop().create_future())
        return self.replies[-1]

    async def do_task(self, value: Ask) -> Told:
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return Told(value.text)

    def do_conflict(self, value: Ask) -> Told:
        raise Conflict("already there", first="m-1")

    def do_bug(self, value: Ask) -> Told:
        raise KeyError("a secret of the implementation")

    async def do_bug_in_task(self, value: Ask) -> Told:
        raise KeyError("a secret of the implementation")

    def do_nonsense(self, value: Ask) -> object:
        return {"who": "knows"}


class Kit:
    """A server and a client of the echo contract."""

    def __init__(self, options: OapServerOptions | None = None, **client: object) -> None:
        self.inventory = Inventory("svc-echo", LoopClock())
        self.echo = EchoService()
        self.service = OapService(methods=ECHO, handle=self.echo.handle, on_event=self.echo.events.append)
        self.server = OapServer(self.inventory, options or OapServerOptions(), [self.service])
        self.client_inventory = Inventory("svc-caller", LoopClock())
        self.heard: list[tuple[int, int, bytes]] = []
        self.dialled = 0
        self.weather: Weather | None = None
        self.ends: tuple[MemoryTransport, MemoryTransport] | None = None
        in_memory = self.server.options.uds_path is None and not self.server.options.host
        self.client = OapClient(
            self.client_inventory,
            OapClientOptions(uds_path=self.server.options.uds_path, **client),
            on_event=lambda *event: self.heard.append(event),
            dial=self.dial if in_memory else None,
        )

    async def dial(
        self, protocol: Callable[[], OapClientConnection]
    ) -> tuple[asyncio.BaseTransport, OapClientConnection]:
        """Join the client to the server in memory."""
        if self.server.is_closed:
            raise ConnectionRefusedError("nobody listens")
        self.dialled += 1
        connection = protocol()
        pair = memory_pair(connection, self.server.protocol(), a_to_b=self.weather, b_to_a=self.weather)
        self.ends = pair
        return pair[0], connection

    async def __aenter__(self) -> Self:
        await self.server.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.client.close()
        await self.server.close()

    async def echo_call(self, name: str = "echo", call: Call | None = None, **fields: object) -> Told:
        """Call a method of the echo contract."""
        args = () if call is None else (call,)
        return await self.client.call(ECHO, name, Ask(**fields), *args)


def unix_options(tmp_path: Path, **more: object) -> OapServerOptions:
    """Listen in a directory of the test's own."""
    return OapServerOptions(uds_path=tmp_path / "run" / "echo.sock", **more)


def spawn(work: object) -> asyncio.Task:
    return asyncio.get_running_loop().create_task(work)


async def settle() -> None:
    """Let everything that is ready happen; no time passes."""
    for _ in range(20):
        await asyncio.sleep(0)
