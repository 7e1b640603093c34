"""A verifier apart from its issuer reads the same keys and floors over HTTP, a Unix socket, frames or a file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.capability.floors import name_digest
from penstock.capability.following import PublishedTrust
from penstock.contracts import passport as p
from penstock.kernel.errors import DownstreamUnavailable, Malformed, PenstockError
from penstock.kernel.inventory import Inventory
from penstock.kernel.pool import Pool
from penstock.net.oap.server import OapServer
from penstock.net.oap.service import OapServerOptions
from penstock.rpc.issuer import issuer_at
from penstock.rpc.oap import serve
from tests.services.passport.kit import Running, options, running

WAYS = ("http", "unix", "oap", "file")


@asynccontextmanager
async def issuer(folder: Path, way: str) -> AsyncIterator[tuple[Running, str]]:
    """Run svc-passport and say where it is, this way."""
    opts = options(folder, sockets=way != "oap")
    listener = replace(opts.listener, uds_path=folder / "p.sock") if way == "unix" else opts.listener
    async with running(replace(opts, listener=listener)) as node:
        if way != "oap":
            place = {"http": f"http://127.0.0.1:{node.port}", "unix": f"unix:{folder / 'p.sock'}"}
            yield node, place.get(way, str(folder / "passport" / "public.json"))
            return
        inventory = Inventory("svc-passport")
        async with OapServer(
            inventory, OapServerOptions(uds_path=folder / "p.sock"), [serve(p.METHODS, node.api)]
        ) as server:
            await server.start()
            yield node, f"oap:{folder / 'p.sock'}"


@pytest.mark.real_loop
@pytest.mark.parametrize("way", WAYS)
async def test_every_way_gives_the_same_keys_and_floors(way: str, tmp_path: Path) -> None:
    async with issuer(tmp_path, way) as (node, address), Pool("issuer", threads=1, capacity=1) as pool:
        found = issuer_at(address, Inventory("svc-test"), pool)
        first = await found.fetch(0)
        again = await found.fetch(0)
        await node.api.revoke(p.Revoke(tenant="acme"), node.operator)
        after = await found.fetch(first.revocations.seq)
        await found.close()

        assert first == again
        assert first.keys == node.api.key_set()
        assert [(entry.kind, entry.value) for entry in after.revocations.entries] == [("tenant", name_digest("acme"))]


@pytest.mark.real_loop
async def test_keys_that_changed_are_sent_anew(tmp_path: Path) -> None:
    async with issuer(tmp_path, "http") as (node, address), Pool("issuer", threads=1, capacity=1) as pool:
        found = issuer_at(address + "/", Inventory("svc-test"), pool)
        before = await found.fetch(0)
        await node.api.rotate(p.Rotate(), node.operator)
        after: PublishedTrust = await found.fetch(0)
        await found.close()

        assert len(after.keys.keys) == len(before.keys.keys) + 1


@pytest.mark.real_loop
@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:1", "unix:/nowhere/p.sock", "oap:/nowhere/p.sock", "oap://127.0.0.1:1"]
)
async def test_an_issuer_that_is_not_there_is_told_within_the_deadline(address: str) -> None:
    async with Pool("issuer", threads=1, capacity=1) as pool:
        found = issuer_at(address, Inventory("svc-test"), pool)
        with pytest.raises(PenstockError):
            await found.fetch(0)
        await found.close()


@pytest.mark.real_loop
async def test_what_is_no_issuer_is_refused(tmp_path: Path) -> None:
    async with issuer(tmp_path, "http") as (node, _address), Pool("issuer", threads=1, capacity=1) as pool:
        found = issuer_at(f"http://127.0.0.1:{node.port}/elsewhere", Inventory("svc-test"), pool)
        with pytest.raises(DownstreamUnavailable):
            await found.fetch(0)
        await found.close()
        for address in ("http://", "oap://", "unix:relative"):
            with pytest.raises(Malformed):
                issuer_at(address, Inventory("svc-test"), pool)
