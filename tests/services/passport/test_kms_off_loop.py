"""A key store that does not answer holds up whoever asked for a signature, and never the loop everybody runs on."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import pytest

from penstock.capability.token import ED25519
from penstock.contracts import passport as p
from penstock.kernel.errors import Timeout
from penstock.kernel.inventory import Inventory
from penstock.services.passport.kms import KmsFailed, KmsGate, KmsLimits
from tests.services.passport.kit import FakeKms, hanging, options, running

NOW = 1_800_000_000


class Module(FakeKms):
    """As a hardware module: one session, so whatever is asked waits while a signature hangs; and it says who asks."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_by: list[str] = []

    def _wait(self) -> None:
        self.asked_by.append(threading.current_thread().name)
        if (stuck := self.hanging) is not None and threading.current_thread() is not threading.main_thread():
            self.on_hang()
            stuck.wait(timeout=60)

    def rotate(self, algs, now_s) -> None:
        self._wait()
        super().rotate(algs, now_s)

    def public_keys(self):
        self._wait()
        return super().public_keys()

    def close(self) -> None:
        self._wait()
        super().close()


def quick():
    chosen = options()
    return replace(chosen, kms=replace(chosen.kms, limits=KmsLimits(timeout_s=0.2)))


async def test_nothing_is_asked_of_a_module_on_the_loop_not_even_when_its_key_is_revoked_while_it_hangs() -> None:
    kms = Module()
    async with running(quick(), kms=kms) as world:
        token = await world.issue()
        kid = (await world.verdict(token)).claims.kid
        with hanging(kms):
            with pytest.raises(Timeout):
                await world.issue()
            await world.api.revoke(p.Revoke(kid=kid), world.operator)

        assert (await world.verdict(token)).reason == "revoked"
        kms.hanging.set()
        kms.hanging = None

    assert kms.asked_by
    assert {name.partition("-")[0] for name in kms.asked_by} == {"kms"}


async def test_a_module_that_hangs_at_the_end_is_left_to_the_process_within_its_deadline() -> None:
    kms = Module()
    gate = KmsGate(Inventory("svc-test"), kms, KmsLimits(timeout_s=0.2))
    await gate.open((ED25519,), NOW)
    loop = asyncio.get_running_loop()
    began = loop.time()
    with hanging(kms):
        await gate.close()

    assert loop.time() - began == pytest.approx(0.2)
    kms.hanging.set()


async def test_a_module_that_says_no_to_the_goodbye_does_not_fail_the_shutdown() -> None:
    class Rude(FakeKms):
        closed = 0

        def close(self) -> None:
            self.closed += 1
            raise KmsFailed("the session is gone")

    kms = Rude()
    gate = KmsGate(Inventory("svc-test"), kms, KmsLimits())
    await gate.open((ED25519,), NOW)
    await gate.close()
    await gate.close()

    assert kms.closed == 1
