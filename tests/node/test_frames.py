"""Which services answer other processes, where, and on what terms."""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.config import Settings, Sources, load
from penstock.contracts import mailbox as m
from penstock.contracts import passport as p
from penstock.contracts.call import Call, Origin
from penstock.kernel.child import ChildSpec, Drain
from penstock.kernel.clock import SYSTEM
from penstock.kernel.errors import Busy, DownstreamUnavailable, Unauthenticated
from penstock.kernel.inventory import Inventory
from penstock.kernel.limiter import ByteBudget
from penstock.kernel.supervisor import Supervisor
from penstock.net.oap.client import OapClient, OapClientOptions
from penstock.net.oap.server import OapServer
from penstock.net.oap.service import OapServerOptions
from penstock.net.server.listener import CannotBind
from penstock.node.build import Node, schema
from penstock.node.frames import frame_children, framed_mailbox, framed_passport, socket_beside
from penstock.rpc.oap import remote_mailbox, remote_passport
from penstock.testing.contracts.memory_mailbox import MemoryMailbox
from tests.services.passport.kit import running


def settings(*sets: str) -> Settings:
    return load(schema(), Sources(sets=sets))


def children(*sets: str, alone: bool = True, inventory: Inventory | None = None) -> list[ChildSpec]:
    """List the endpoints of a mailbox."""
    node = SimpleNamespace(
        settings=SimpleNamespace(value=settings(*sets)), serves_alone=alone, budget=ByteBudget(1 << 24)
    )
    mailbox = framed_mailbox(MemoryMailbox(SYSTEM))
    return frame_children(cast("Node", node), "mailbox", inventory or Inventory("svc-mailbox"), mailbox)


@asynccontextmanager
async def client(**options: Any) -> AsyncIterator[OapClient]:
    made = OapClient(Inventory("caller"), OapClientOptions(tries_max=1, **options))
    try:
        yield made
    finally:
        await made.close()


def test_alone_a_service_has_a_socket_in_its_data_directory_and_tcp_where_that_is_asked_for(tmp_path: Path) -> None:
    here = f"node.data_dir={tmp_path}"

    assert [child.name for child in children(here)] == ["oap_listener"]
    assert [child.name for child in children(here, "mailbox.oap_addr=127.0.0.1:0")] == [
        "oap_listener",
        "oap_tcp_listener",
    ]
    assert all(child.drain is Drain.STOP_INTAKE for child in children(here))


def test_beside_the_others_and_without_memory_there_is_no_socket(tmp_path: Path) -> None:
    assert children(f"node.data_dir={tmp_path}", alone=False) == []
    assert children("node.amnesia=true") == []
    assert [child.name for child in children("mailbox.oap_addr=127.0.0.1:0", alone=False)] == ["oap_tcp_listener"]


def test_a_path_too_long_for_a_socket_costs_the_socket_and_not_the_start(tmp_path: Path) -> None:
    assert children(f"node.data_dir={tmp_path / ('x' * 100)}") == []


def test_tcp_beyond_loopback_is_refused_where_nothing_is_checked() -> None:
    with pytest.raises(Exception, match=r"mailbox\.oap_addr"):
        settings("node.insecure_dev=true", "mailbox.oap_addr=0.0.0.0:5405")


@pytest.mark.real_loop
async def test_the_socket_is_private_answers_comes_back_after_a_crash_and_is_gone_at_the_end(tmp_path: Path) -> None:
    inventory, path = Inventory("svc-mailbox"), socket_beside(tmp_path, "mailbox")
    path.parent.mkdir(mode=0o700)
    specs = children(f"node.data_dir={tmp_path}", "mailbox.oap_addr=127.0.0.1:0", inventory=inventory)
    supervisor = Supervisor(inventory, specs)
    await supervisor.start()
    mode = stat.S_IMODE(path.stat().st_mode)
    async with client(uds_path=path) as caller:
        mailbox = remote_mailbox(caller)
        await mailbox.send(m.Send("orders", b"x"))
        supervisor.kill("oap_listener")
        again = None
        while again is None:
            try:
                again = await mailbox.recv(m.Recv("orders"))
            except (DownstreamUnavailable, Busy):
                continue
    await supervisor.drain()

    assert mode == 0o600
    assert [message.payload for message in again.messages] == [b"x"]
    assert not path.exists()


@pytest.mark.real_loop
async def test_a_socket_somebody_has_is_said_in_one_sentence(tmp_path: Path) -> None:
    path = socket_beside(tmp_path, "mailbox")
    path.parent.mkdir(mode=0o700)
    taken = OapServer(Inventory("first"), OapServerOptions(uds_path=path), [serve_nothing()])
    await taken.start()
    inventory = Inventory("svc-mailbox")
    try:
        with pytest.raises(CannotBind, match="somebody already listens"):
            await Supervisor(inventory, children(f"node.data_dir={tmp_path}", inventory=inventory)).start()
    finally:
        await taken.close()


def serve_nothing() -> Any:
    """Answer a mailbox's contract with an empty one."""
    return framed_mailbox(MemoryMailbox(SYSTEM)).service


@pytest.mark.real_loop
async def test_a_large_batch_of_strangers_tokens_needs_a_token_whatever_way_it_came(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run" / "p.sock"
    path.parent.mkdir(mode=0o700)
    large = p.VerifyBatch((p.Verify("psp1_x"),) * 17)
    async with running() as world:
        service = framed_passport(world.api).service
        tcp = OapServer(Inventory("tcp"), OapServerOptions(host="127.0.0.1"), [service])
        unix = OapServer(Inventory("unix"), OapServerOptions(uds_path=path), [service])
        await tcp.start()
        await unix.start()
        try:
            async with client(host="127.0.0.1", port=tcp.port) as far, client(uds_path=path) as near:
                said = Call(origin=Origin("POST", "/v1/passport/verify_batch", "192.0.2.1", charged=True))
                with pytest.raises(Unauthenticated):
                    await remote_passport(far).verify_batch(large, said)
                small = await remote_passport(far).verify_batch(p.VerifyBatch(large.items[:16]))
                with pytest.raises(Unauthenticated):
                    await remote_passport(near).verify_batch(large, said)
                known = await remote_passport(far).verify_batch(large, Call(world.operator_token))
        finally:
            await tcp.close()
            await unix.close()

    assert [len(each.results) for each in (small, known)] == [16, 17]
