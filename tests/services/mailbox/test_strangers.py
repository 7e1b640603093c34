"""Work done for strangers: a token that is no good costs one verdict, no item, no read of the disk, and no body."""

from __future__ import annotations

import asyncio
import json

import pytest

from penstock.contracts.call import Call
from penstock.contracts.mailbox import Ack, AckBatch, Send, SendBatch
from penstock.kernel.clock import LoopClock
from penstock.kernel.errors import Unauthenticated
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from penstock.services.mailbox.config import MailboxOptions
from penstock.services.mailbox.engines.memory import MemoryEngine
from penstock.services.mailbox.service import SERVICE, MailboxService
from tests.capability.kit import Issuer
from tests.services.mailbox.test_http import LISTENER
from tests.services.mailbox.test_narrow_tokens import guarded, token

TOPICS = [f"topic-{number}" for number in range(256)]


async def test_batch_with_a_bad_token_is_refused_whole_by_one_verdict() -> None:
    async with guarded() as (service, book):
        asked = []
        verify = book.verify

        def counted(*args, **more):
            asked.append(args)
            return verify(*args, **more)

        book.verify = counted
        with pytest.raises(Unauthenticated):
            await service.api.send_batch(
                SendBatch(tuple(Send(topic, b"x") for topic in TOPICS)), Call("no token of ours")
            )

        assert len(asked) == 1
        assert service.state.ledger.messages == 0


async def test_strangers_settlements_read_nothing_from_the_disk() -> None:
    async with guarded() as (service, book):
        sent = await service.api.send(Send("orders", b"x"), Call(token(book)))
        unknown = [f"{sent.msg_id[:-4]}{number:04x}" for number in range(256)]
        reads = []
        rows = service.engine.reads.rows
        service.engine.reads.rows = lambda seqs: reads.append(seqs) or rows(seqs)

        with pytest.raises(Unauthenticated):
            await service.api.ack_batch(AckBatch(tuple(Ack(name, "r") for name in unknown)), Call("nobody"))
        with pytest.raises(Unauthenticated):
            await service.api.ack(Ack(unknown[0], "r"), Call("nobody"))
        assert reads == []


@pytest.fixture
async def open_door():
    """A mailbox with a real verifier behind a real listener, and its issuer."""
    issuer = Issuer()
    inventory = Inventory(SERVICE, LoopClock())
    options = MailboxOptions(engine="memory", listener=LISTENER)
    service = MailboxService(inventory, options, engine=MemoryEngine(bytes(32)), verifier=issuer.verifier)
    supervisor = Supervisor(inventory, service.children(), service.supervision())
    await supervisor.start()
    yield service, issuer
    await supervisor.drain(60.0)
    await service.close()


async def head_only(port: int, bearer: str, size: int) -> bytes:
    """Send a head that promises a body, send none of it, and return the answer's first line."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    field = f"Authorization: Bearer {bearer}\r\n" if bearer else ""
    head = f"POST /v1/send/batch HTTP/1.1\r\nHost: localhost\r\n{field}Content-Length: {size}\r\n\r\n"
    writer.write(head.encode())
    line = await reader.readline()
    writer.close()
    return line


@pytest.mark.real_loop
async def test_missing_or_known_bad_token_is_refused_before_the_body(open_door) -> None:
    service, _ = open_door
    port = service.listener.port
    foreign = Issuer().token(kid="k9")
    body = json.dumps({"messages": []}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    first = f"POST /v1/send/batch HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {foreign}\r\n"
    writer.write(first.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    assert b" 401 " in await reader.readline()
    writer.close()
    assert b" 401 " in await head_only(port, "", 900_000)
    assert b" 401 " in await head_only(port, foreign, 900_000)
