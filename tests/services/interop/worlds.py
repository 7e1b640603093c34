"""A running bridge for a test: the real service under its supervisor, behind a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from penstock.config import ListenerSettings
from penstock.config.kinds import Secret
from penstock.kernel.clock import SYSTEM
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from penstock.services.interop.config import InteropOptions
from penstock.services.interop.endpoints import Endpoints, make_endpoints
from penstock.services.interop.service import SERVICE, BridgeAround, InteropService
from penstock.testing.contracts.memory_mailbox import MemoryMailbox
from penstock.testing.contracts.memory_storage import MemoryStorage
from tests.services.interop.senders import SENDERS, Sent, public_hex

LISTENER = ListenerSettings(
    host="127.0.0.1",
    port=0,
    uds_path=None,
    uds_allow_uids=(),
    max_conns=256,
    max_conns_per_ip=256,
    read_timeout_s=60.0,
    write_timeout_s=60.0,
    idle_timeout_s=60.0,
    request_deadline_s=30.0,
    body_bytes_max=1 << 20,
    decompress_ratio_cap=10,
    tls_cert_path=None,
    tls_key_path=None,
    allowed_hosts=(),
)
ROW = {
    "kind": "",
    "topic": "",
    "tolerance_s": None,
    "allow_ips": (),
    "allow_hosts": (),
    "key": "",
    "claim": "auto",
    "on_attack": "report",
    "header": "",
    "format": "{hex}",
    "template": "{body}",
    "timestamp_header": "",
    "id_header": "",
}


def endpoints(rows: dict[str, dict[str, Any]] | None = None) -> Endpoints:
    """Make an endpoint for every kind of sender, or those of the rows."""
    if rows is None:
        rows = {kind: {**dict(sender.setup), "secrets": (_secret(kind),)} for kind, sender in SENDERS.items()}
    filled = {name: {**ROW, **row} for name, row in rows.items()}
    for row in filled.values():
        row["secrets"] = tuple(Secret(text) for text in row["secrets"])
    return make_endpoints(filled, "https://hooks.example.org", ())


def _secret(kind: str) -> str:
    return public_hex(SENDERS[kind].secret) if kind == "discord" else SENDERS[kind].secret


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Http:
    """A connection for each request, so that fields may be repeated and bodies cut."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def ask(
        self, method: str, path: str, body: bytes = b"", fields: tuple[tuple[bytes, bytes], ...] = ()
    ) -> Answer:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        try:
            lines = b"".join(b"%b: %b\r\n" % pair for pair in fields)
            start = (
                f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
            )
            writer.write(start.encode() + lines + b"\r\n" + body)
            return _answer(await reader.read())
        finally:
            writer.close()

    async def hook(self, name: str, sent: Sent) -> Answer:
        target = sent.target.replace(b"/webhooks/test", f"/webhooks/{name}".encode()).decode()
        return await self.ask("POST", target, sent.body, sent.fields)


def _answer(data: bytes) -> Answer:
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    return Answer(int(lines[0].split(" ")[1]), headers, body)


@dataclass
class World:
    """A bridge, what is behind it, and a client."""

    service: InteropService
    inventory: Inventory
    mailbox: Any
    storage: Any
    http: Http
    supervisor: Supervisor

    def count(self, name: str, **labels: str) -> float:
        try:
            return self.inventory.metrics.value(name, **labels)
        except KeyError:
            # Series of refusals are made at the first one.
            return 0

    def messages(self, topic: str) -> list[dict[str, Any]]:
        """Read the events of a topic in the in-memory mailbox."""
        found = [message for message in self.mailbox.state.messages.values() if message.sent.topic == topic]
        return [json.loads(message.sent.payload) for message in found]


async def until(found: Callable[[], object]) -> None:
    """Look again for half a minute."""
    for _ in range(3000):
        if found():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came true")


@asynccontextmanager
async def bridge(
    given: Endpoints | None = None,
    *,
    mailbox: Any = None,
    storage: Any = None,
    around: dict[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[World]:
    """Run the bridge and end it in good order."""
    inventory = Inventory(SERVICE, SYSTEM)
    mailbox, storage = mailbox or MemoryMailbox(SYSTEM), storage or MemoryStorage()
    chosen = InteropOptions(listener=LISTENER, endpoints=endpoints() if given is None else given, **options)
    service = InteropService(inventory, chosen, BridgeAround(mailbox=mailbox, storage=storage, **(around or {})))
    supervisor = Supervisor(inventory, service.children(), replace(service.supervision(), drain_deadline_s=25.0))
    await supervisor.start()
    try:
        yield World(service, inventory, mailbox, storage, Http(service.listener.port), supervisor)
    finally:
        report = await supervisor.drain(25.0)
        await service.close()
        assert report.clean, report
