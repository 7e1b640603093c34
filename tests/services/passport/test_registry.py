"""The registry.

Unsigned, older and malformed policies are refused and counted, and the last good one stays in force.
"""

from __future__ import annotations

import asyncio
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.capability import ed25519
from penstock.contracts import passport as p
from penstock.kernel.errors import Malformed, PenstockError
from penstock.services.passport.config import RegistryOptions
from penstock.services.passport.policy import Descriptor, Limits, in_force, read, sign
from penstock.services.passport.service import PassportService
from penstock.testing import until
from tests.services.passport.kit import options, running

SEED, OTHER = bytes(32), bytes([1]) * 32
ANCHOR = ed25519.public_of(SEED)


def test_a_signed_policy_is_read_back():
    descriptor = Descriptor(version=7, max_ttl_s=60)

    assert read(sign(descriptor, SEED), ANCHOR, 7) == descriptor


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (sign(Descriptor(version=1), OTHER), "unsigned"),
        (sign(Descriptor(version=1), SEED), "rollback"),
        (b"{}", "malformed"),
        (b"", "malformed"),
        (b'{"descriptor":"!","signature":"?"}', "malformed"),
    ],
)
def test_what_is_not_signed_newer_and_whole_is_refused(data, reason):
    with pytest.raises(PenstockError) as caught:
        read(data, ANCHOR, 2)

    assert caught.value.facts["reason"] == reason


@given(st.data())
def test_every_changed_byte_of_a_policy_is_refused(data):
    signed = bytearray(sign(Descriptor(version=3), SEED))
    place = data.draw(st.integers(0, len(signed) - 1))
    signed[place] ^= data.draw(st.integers(1, 255))
    try:
        descriptor = read(bytes(signed), ANCHOR, 0)
    except PenstockError:
        return
    pytest.fail(f"a changed policy was read: {descriptor}")


def test_neither_registry_nor_settings_can_widen_the_other():
    policy = in_force(
        Descriptor(version=1, max_ttl_s=100, algs=("ed25519",), families=("op", "topic", "made-up"), max_rate_rps=50),
        Limits(max_ttl_s=3600, disabled=frozenset({"topic"}), max_rate_rps=5),
    )

    assert (policy.limits.max_ttl_s, policy.limits.algs, policy.limits.max_rate_rps) == (100, ("ed25519",), 5)
    assert policy.families == {"op"}


async def test_local_registry_is_made_once_and_kept(tmp_path):
    for _ in range(2):
        async with running(options(tmp_path)) as world:
            assert world.service.book.view.value.policy.version == 1
            assert await world.issue()

    assert (tmp_path / "passport" / "registry.json").exists()


async def test_a_registry_that_rolls_back_is_refused_also_after_a_restart(tmp_path):
    file = tmp_path / "policy.json"
    registry = RegistryOptions(endpoint=str(file), public_key=ANCHOR.hex())
    file.write_bytes(sign(Descriptor(version=5, max_ttl_s=60), SEED))
    async with running(options(tmp_path, registry=registry)) as world:
        file.write_bytes(sign(Descriptor(version=4, max_ttl_s=3600), SEED))
        assert not await world.service.registry.step()
        with pytest.raises(Malformed):
            await world.issue(ttl_s=61)
        assert world.inventory.metrics.value("registry_failures_total", reason="rollback") == 1
        world.service.sampler.sample()
        assert "registry" in world.inventory.health.verdict().degraded
        file.write_bytes(sign(Descriptor(version=6, max_ttl_s=120), SEED))
        assert await world.service.registry.step()
        assert await world.issue(ttl_s=120)
    file.write_bytes(sign(Descriptor(version=5), SEED))

    async with running(options(tmp_path, registry=registry)) as world:
        assert world.service.book.view.value.policy is None
        with pytest.raises(PenstockError) as caught:
            await world.issue()
    assert caught.value.code == "not_ready"


async def test_a_policy_signed_by_somebody_else_is_never_adopted(tmp_path):
    file = tmp_path / "policy.json"
    file.write_bytes(sign(Descriptor(version=9), OTHER))
    registry = RegistryOptions(endpoint=str(file), public_key=ANCHOR.hex())
    async with running(options(registry=registry)) as world:
        assert world.service.book.view.value.policy is None
        assert world.inventory.metrics.value("registry_failures_total", reason="unsigned") >= 1
        file.write_bytes(sign(Descriptor(version=9), SEED))
        # It is tried again by itself, with backoff.
        await asyncio.sleep(5)

        assert world.service.book.view.value.policy.version == 9


async def remember_directly(self, version: int) -> None:
    """A wrong twin: a second writer of the state."""
    await self.book.remember_policy(version)


class HeldStore:
    """A disk that takes its time: saves wait until they are let go, so that two changes surely meet."""

    def __init__(self, store) -> None:
        self._save = store.save
        self._loop = asyncio.get_running_loop()
        self._free = threading.Event()
        self.reached = asyncio.Event()
        store.save = self.save

    def save(self, state) -> None:
        self._loop.call_soon_threadsafe(self.reached.set)
        self._free.wait(timeout=60)
        self._save(state)

    def let_go(self) -> None:
        self._free.set()


@pytest.mark.parametrize("writers", [1, 2])
async def test_a_new_policy_and_a_revocation_at_the_same_moment_are_both_kept(writers, tmp_path, monkeypatch):
    remember = remember_directly if writers == 2 else PassportService._remember_policy
    asked = asyncio.Event()

    async def asks(self, version: int) -> None:
        # Whoever waits for this runs after the call below has gone as far as it can.
        asked.set()
        await remember(self, version)

    monkeypatch.setattr(PassportService, "_remember_policy", asks)
    file = tmp_path / "policy.json"
    registry = RegistryOptions(endpoint=str(file), public_key=ANCHOR.hex())
    file.write_bytes(sign(Descriptor(version=1), SEED))
    async with running(options(tmp_path, registry=registry)) as world:
        token = await world.issue(tenant="a")
        file.write_bytes(sign(Descriptor(version=2), SEED))
        asked.clear()
        disk = HeldStore(world.service.book._store)
        loop = asyncio.get_running_loop()
        revoking = loop.create_task(world.api.revoke(p.Revoke(tenant="a"), world.operator))
        await disk.reached.wait()
        adopting = loop.create_task(world.service.registry.step())
        await asked.wait()
        disk.let_go()
        await asyncio.wait([revoking, adopting])
        assert revoking.exception() is None
        assert adopting.result()
        kept = (world.service.book.state.policy_version, world.service.book.state.current)
        verdict = (await world.verdict(token)).reason

    assert ((kept, verdict) == ((2, 1), "revoked")) is (writers == 1)


@pytest.mark.real_loop
async def test_a_policy_is_fetched_from_a_url():
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        body = sign(Descriptor(version=3, max_ttl_s=77), SEED)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    registry = RegistryOptions(endpoint=f"http://127.0.0.1:{port}/policy", public_key=ANCHOR.hex())
    try:
        async with running(options(registry=registry)) as world:
            # Fetched by now, unless the machine was busy: then it is tried again.
            await until(lambda: world.service.book.view.value.policy is not None)

            assert world.service.book.view.value.policy.limits.max_ttl_s == 77
    finally:
        server.close()
        await server.wait_closed()
