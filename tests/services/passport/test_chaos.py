"""What the founding document demands when things stall, die or overflow.

Deadlines, a breaker, honest readiness, counters.
"""

from __future__ import annotations

import asyncio

import pytest

from penstock.capability.token import ED25519
from penstock.contracts import passport as p
from penstock.kernel.broadcast import Broadcast
from penstock.kernel.clock import LoopClock
from penstock.kernel.errors import Busy, DownstreamUnavailable
from penstock.kernel.inventory import Inventory
from penstock.services.passport.kms import SLOW_FOR_S, KmsGate, KmsLimits
from penstock.services.passport.registry import PolicySource, RegistrySync
from penstock.services.passport.service import Around
from penstock.testing import until
from tests.services.passport.kit import START_S, FakeKms, options, running
from tests.services.passport.test_http import connected

# --- the registry stalls
# -----------------------------------------------------------------------------------------------


async def test_a_registry_that_never_answers_is_given_up_on_in_time_and_counted():
    async with running() as world:
        book, inventory = world.service.book, Inventory("svc-test", LoopClock(START_S))

        async def hang() -> tuple[bytes, bytes]:
            await asyncio.get_running_loop().create_future()
            raise AssertionError("nobody answers")

        source = PolicySource(hang, world.service._remember_policy)
        sync = RegistrySync(inventory, book, source, poll_s=30.0, timeout_s=3.0)
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(10):
            assert not await sync.step()

        assert asyncio.get_running_loop().time() - began == pytest.approx(3.0, abs=0.05)
        assert inventory.metrics.value("io_timeouts_total", op="registry") == 1
        assert sync.failures_in_a_row == 1
        assert (await world.verdict(await world.issue())).ok  # the last good policy stays in force


async def test_a_store_that_hangs_while_a_policy_is_remembered_is_given_up_on_too():
    """The deadline covers all of a step: fetching, checking, and having the version kept."""
    async with running() as world:

        async def fetched() -> tuple[bytes, bytes]:
            return await world.service._fetch()

        async def hang(_version: int) -> None:
            await asyncio.get_running_loop().create_future()

        world.service.book._descriptor = None
        world.service.book._swap()
        inventory = Inventory("svc-test", LoopClock(START_S))
        sync = RegistrySync(inventory, world.service.book, PolicySource(fetched, hang), poll_s=30.0, timeout_s=3.0)
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(10):
            assert not await sync.step()

        assert asyncio.get_running_loop().time() - began == pytest.approx(3.0, abs=0.05)
        assert inventory.metrics.value("io_timeouts_total", op="registry") == 1


# --- the key store is slow
# ---------------------------------------------------------------------------------------------


class SlowKms(FakeKms):
    """An inline engine whose signatures take as long as the test says, by the clock of the gate."""

    inline = True

    def __init__(self) -> None:
        super().__init__()
        self.takes_s = 0.0
        self.late_s = 0.0

    def sign(self, kid: str, message: bytes) -> bytes:
        self.late_s += self.takes_s
        return super().sign(kid, message)


def slow_gate() -> tuple[KmsGate, SlowKms, str, Inventory]:
    kms = SlowKms()
    kms.open((ED25519,), 0)
    inventory = Inventory("svc-test", LoopClock(0.0))
    gate = KmsGate(inventory, kms, KmsLimits(slo_s=0.5))
    plain = gate._clock
    gate._clock = lambda: plain() + kms.late_s
    return gate, kms, kms.public_keys()[0].kid, inventory


async def signs(gate: KmsGate, kid: str, seconds: float) -> None:
    """Sign ten times a second for so long."""
    until_s = gate._clock() + seconds
    while gate._clock() < until_s:
        await gate.sign(kid, b"m")
        await asyncio.sleep(0.1)


async def test_a_slow_key_store_is_given_up_on_after_a_minute_of_it_and_not_before():
    gate, kms, kid, _ = slow_gate()
    kms.takes_s = 0.6
    await signs(gate, kid, SLOW_FOR_S - 2)
    assert gate.usable

    with pytest.raises(DownstreamUnavailable) as caught:
        await signs(gate, kid, 60)
    assert caught.value.facts["reason"] == "kms_breaker"


async def test_a_key_store_within_its_objective_is_never_given_up_on():
    gate, kms, kid, _ = slow_gate()
    kms.takes_s = 0.4
    await signs(gate, kid, 4 * SLOW_FOR_S)

    assert gate.usable


async def test_slow_moments_with_good_ones_between_them_do_not_add_up():
    gate, kms, kid, _ = slow_gate()
    for _ in range(4):
        kms.takes_s = 0.6
        await signs(gate, kid, 30)
        kms.takes_s = 0.0
        await signs(gate, kid, 2 * SLOW_FOR_S)

    assert gate.usable


async def test_an_inline_engine_is_measured_like_any_other():
    gate, kms, kid, inventory = slow_gate()
    kms.takes_s = 0.6
    await signs(gate, kid, 6)
    histogram = inventory.metrics.histogram("kms_call_latency_seconds", "How long the engine took to sign.", op="sign")

    assert histogram.count >= 8
    assert histogram.total >= 8 * 0.6


# --- a worker dies under load
# ------------------------------------------------------------------------------------------


def watched(world) -> list[tuple[bool, tuple[str, ...]]]:
    """Note every verdict that `/readyz` would give from now on, at the moment it changes."""
    seen, health = [], world.inventory.health
    health.on_flip(lambda *_: seen.append((health.verdict().ready, health.verdict().degraded)))
    return seen


async def test_a_killed_worker_degrades_readiness_under_load_and_then_recovers():
    async with running(options(workers=2)) as world:
        issued, refused, stop = [], [], asyncio.Event()

        async def load() -> None:
            while not stop.is_set():
                try:
                    issued.append(await world.issue())
                except Exception as error:  # noqa: BLE001 - what a client would see
                    refused.append(error)
                await asyncio.sleep(0.005)

        loading = [asyncio.get_running_loop().create_task(load()) for _ in range(4)]
        await until(lambda: len(issued) > 20)
        health = world.inventory.health
        assert (health.verdict().ready, health.verdict().degraded) == (True, ())
        victims = [child for child in world.supervisor.children if child.name.startswith("issuance")]
        seen = watched(world)
        assert victims[0].kill()
        before = len(issued)
        await until(lambda: victims[0].restarts == 1 and health.verdict().degraded == ())
        await until(lambda: len(issued) > before + 20)
        stop.set()
        await asyncio.gather(*loading)

        assert (True, ("issuance",)) in seen
        assert all(ready for ready, _ in seen)
        assert [token for token in issued if not (await world.verdict(token)).ok] == []
        assert len(refused) <= 4, refused  # at most what the dead worker held


async def test_without_any_worker_readiness_says_no_and_verify_goes_on():
    async with running(options(workers=2)) as world:
        token = await world.issue()
        seen = watched(world)
        victims = [child for child in world.supervisor.children if child.name.startswith("issuance")]
        assert all(child.kill() for child in victims)
        assert (await world.verdict(token)).ok
        await until(lambda: all(child.restarts for child in victims) and world.inventory.health.verdict().ready)
        assert (False, ("issuance",)) in seen

        assert (await world.verdict(await world.issue())).ok


async def test_the_one_writer_of_epochs_shuts_its_gate_while_it_is_dead():
    async with running() as world:
        (victim,) = [child for child in world.supervisor.children if child.name == "revocation_worker"]
        seen = watched(world)
        assert victim.kill()
        await until(lambda: victim.restarts and world.inventory.health.verdict().ready)
        assert (False, ("revocation_worker",)) in seen
        await world.api.revoke(p.Revoke(tenant="acme"), world.operator)

        assert victim.restarts == 1


# --- overflow
# ----------------------------------------------------------------------------------------------------------


async def test_a_full_line_of_revocations_refuses_and_is_counted():
    async with running(options(revoke_capacity=1)) as world:
        attempts = [world.api.revoke(p.Revoke(tenant=f"t{n}"), world.operator) for n in range(8)]
        outcomes = await asyncio.gather(*attempts, return_exceptions=True)
        refused = [outcome for outcome in outcomes if isinstance(outcome, Busy)]

        assert refused
        assert all(isinstance(outcome, Busy | p.Revoked) for outcome in outcomes)
        assert world.inventory.metrics.value("queue_dropped_total", queue="revoke") == len(refused)
        assert world.service.book.state.current == len(outcomes) - len(refused)


@pytest.mark.real_loop
async def test_a_body_over_its_limit_is_refused_and_counted_as_the_document_names_it():
    async with connected() as client:
        refused = await client.ask("POST", "/v1/passport/verify", {"token": "x" * (1 << 20)})

        assert refused.status == 413
        assert client.world.inventory.metrics.value("rejects_total", reason="over_limit") == 1


async def test_a_subscriber_that_lags_is_named_in_a_warning_and_goes_by_the_present_state(caplog):
    async with running() as world:
        policy = world.service.book.events
        for number in range(policy.capacity + 7):
            policy.publish(type("Told", (), {"kind": "policy", "version": number})())
        await asyncio.sleep(0.1)
        (said,) = [record for record in caplog.records if record.message == "bus.lagged"]

        assert (said.levelname, said.fields["subscriber"], said.fields["bus"]) == (
            "WARNING",
            "bus_subscriber",
            "policy",
        )
        assert said.fields["lost"] >= 7
        assert world.inventory.metrics.value("bus_lagged_total") == said.fields["lost"]


async def test_a_config_watcher_that_lags_is_named_and_follows_the_settings_all_the_same(caplog):
    bus, limits = Broadcast("events", capacity=4), [options().limits]
    async with running(around=Around(bus=bus, limits=lambda: limits[-1])) as world:
        await until(lambda: bus.receivers == 1)
        limits.append(type(limits[0])(max_ttl_s=7))
        for number in range(9):
            bus.publish(number)
        await until(lambda: world.service.book.limits.max_ttl_s == 7)
        (said,) = [record for record in caplog.records if record.message == "bus.lagged"]

        assert (said.fields["subscriber"], said.fields["bus"]) == ("config_watcher", "events")
