"""Contracts over OAP/1: the stub and the service are made from the table, and nothing is lost between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.contracts import mailbox_rules, passport, storage
from penstock.contracts.call import Call
from penstock.contracts.capability import RequestContext
from penstock.contracts.mailbox import Ack, GetTopics, Recv, Send
from penstock.contracts.passport import Issue, Verify
from penstock.contracts.storage import Get, Put
from penstock.kernel.clock import Clock, LoopClock
from penstock.kernel.errors import Forbidden, Integrity, Unauthenticated
from penstock.kernel.inventory import Inventory
from penstock.net.oap.client import OapClient, OapClientOptions
from penstock.net.oap.server import OapServer
from penstock.net.oap.service import OapServerOptions
from penstock.rpc.oap import (
    remote_mailbox,
    remote_passport,
    remote_storage,
    serve,
)
from penstock.testing.contracts.memory_mailbox import MemoryMailbox
from penstock.testing.contracts.memory_passport import MemoryPassport
from penstock.testing.contracts.memory_storage import MemoryStorage
from penstock.testing.sweep import sweep
from penstock.testing.transport import memory_pair
from tests.contracts.worlds import in_ram


@asynccontextmanager
async def endpoint(*services: object) -> AsyncIterator[OapClient]:
    server = OapServer(Inventory("svc"), OapServerOptions(), list(services))

    async def dial(protocol):
        connection = protocol()
        return memory_pair(connection, server.protocol())[0], connection

    client = OapClient(Inventory("caller"), OapClientOptions(), dial=dial)
    await server.start()
    try:
        yield client
    finally:
        await client.close()
        await server.close()


def test_implementation_that_lacks_a_method_is_found_when_it_is_served() -> None:
    with pytest.raises(AttributeError, match="send"):
        serve(mailbox_rules.METHODS, object())


async def test_one_endpoint_serves_several_contracts() -> None:
    clock = LoopClock()
    services = [
        serve(mailbox_rules.METHODS, MemoryMailbox(clock)),
        serve(passport.METHODS, office := MemoryPassport(clock)),
        serve(storage.METHODS, MemoryStorage()),
    ]
    async with endpoint(*services) as client:
        address = (await remote_storage(client).put(Put(b"object"))).address
        await remote_mailbox(client).send(Send("objects", address.encode()))
        issued = await remote_passport(client).issue(Issue("alice", "*"), Call(office.operator_token))

        (message,) = (await remote_mailbox(client).recv(Recv("objects"))).messages
        assert (await remote_storage(client).get(Get(message.payload.decode()))).data == b"object"
        assert (await remote_passport(client).verify(Verify(issued.token))).ok


def guarded(clock: Clock) -> tuple[MemoryMailbox, MemoryPassport]:
    office = MemoryPassport(clock)

    def guard(call: Call, op: str, topic: str | None) -> None:
        office.book.verify(call.capability, RequestContext(aud="svc-mailbox", op=op, topic=topic))

    return MemoryMailbox(clock, guard=guard), office


async def test_capability_crosses_the_wire_and_is_judged_by_the_service_behind() -> None:
    box, office = guarded(LoopClock())
    token = office.book.attenuate(office.operator_token, "op=send,recv", "topic=orders/")
    async with endpoint(serve(mailbox_rules.METHODS, box)) as client:
        mailbox = remote_mailbox(client)
        await mailbox.send(Send("orders/eu", b"x"), Call(token))
        (got,) = (await mailbox.recv(Recv("orders/eu"), Call(token))).messages
        with pytest.raises(Unauthenticated):
            await mailbox.send(Send("orders/eu", b"x"))
        with pytest.raises(Forbidden):
            await mailbox.send(Send("billing", b"x"), Call(token))
        # The op of an ack is not covered, and its topic is the message's own.
        with pytest.raises(Forbidden):
            await mailbox.ack(Ack(got.msg_id, got.receipt), Call(token))
        assert [t.topic for t in (await mailbox.topics(GetTopics(), Call(token))).topics] == ["orders/eu"]

        assert (await mailbox.ack(Ack(got.msg_id, got.receipt), Call(office.operator_token))).ok


async def test_message_damaged_in_the_service_is_refused_on_its_way_out() -> None:
    box = MemoryMailbox(LoopClock())
    async with endpoint(serve(mailbox_rules.METHODS, box)) as client:
        await remote_mailbox(client).send(Send("orders", b"x"))
        for message in box.state.messages.values():
            message.payload_hash = "b3:" + "0" * 64

        with pytest.raises(Integrity):
            await remote_mailbox(client).recv(Recv("orders"))


def test_call_cancelled_before_any_step_leaves_no_task_no_socket_and_a_usable_client() -> None:
    async def scenario(run):
        box = MemoryMailbox(LoopClock())
        async with endpoint(serve(mailbox_rules.METHODS, box)) as client:
            mailbox = remote_mailbox(client)
            run.start(mailbox.send(Send("orders", b"x", idem_key="once")))
            await run.ended()
            await mailbox.send(Send("orders", b"x", idem_key="once"))
            return len(box.state.messages)

    assert sweep(scenario, check=lambda stored: stored == 1) > 3


def test_recv_cancelled_before_any_step_loses_no_message() -> None:
    async def scenario(run):
        async with in_ram(MemoryMailbox, mailbox_rules.METHODS) as world:
            run.start(world.api.recv(Recv("orders", wait_ms=1000, visibility_ms=250)))
            await asyncio.sleep(0.1)
            await world.api.send(Send("orders", b"x"))
            await run.ended()
            await asyncio.sleep(1)
            return [message.payload for message in (await world.api.recv(Recv("orders"))).messages]

    assert sweep(scenario, check=lambda got: got == [b"x"]) > 3
