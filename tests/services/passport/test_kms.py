"""The key store: late is 504, broken is 503, five in a row open the breaker, and no key is ever mislabelled."""

from __future__ import annotations

import asyncio
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.capability import ed25519
from penstock.capability.token import ED25519, HYBRID, decode, encode
from penstock.contracts import passport as p
from penstock.kernel.clock import LoopClock
from penstock.kernel.errors import DownstreamUnavailable, Timeout
from penstock.kernel.inventory import Inventory
from penstock.services.passport.config import KmsOptions
from penstock.services.passport.core import root_of
from penstock.services.passport.kms import KmsFailed, KmsGate, KmsLimits
from penstock.services.passport.kms_local import LocalKms, Seal, sealing_secret
from tests.services.passport.kit import FakeKms, hanging, options, running

NOW = 1_800_000_000
SOFTHSM = Path("/usr/lib/softhsm/libsofthsm2.so")


def quick(timeout_s: float = 0.2):
    chosen = options()
    return replace(chosen, workers=8, kms=replace(chosen.kms, limits=KmsLimits(timeout_s=timeout_s)))


async def test_a_hanging_engine_is_a_504_in_time_then_the_breaker_opens_and_few_threads_are_stuck():
    kms = FakeKms()
    async with running(quick(), kms=kms) as world:
        token = await world.issue()
        loop = asyncio.get_running_loop()
        began = loop.time()
        with hanging(kms):
            with pytest.raises(Timeout) as caught:
                await world.issue()
            assert (caught.value.status, caught.value.op) == (504, "kms")
            assert loop.time() - began == pytest.approx(0.2)
            late = [world.api.issue(p.Issue("a", "svc-mailbox"), world.operator) for _ in range(4)]
            results = [await settled(attempt) for attempt in late]
            assert all(isinstance(result, Timeout) for result in results)

        # Open: refused at once, without asking the engine; verify does not notice.
        calls = kms.calls
        began = loop.time()
        with pytest.raises(DownstreamUnavailable) as refused:
            await world.issue()
        assert (refused.value.facts["reason"], kms.calls) == ("kms_breaker", calls)
        assert loop.time() == began
        assert world.inventory.metrics.value("pool_stuck", pool="kms") <= 4
        assert world.inventory.metrics.value("io_timeouts_total", op="kms") == 5
        world.service.sampler.sample()
        assert "kms" in world.inventory.health.verdict().missing
        assert (await world.verdict(token)).ok
        kms.hanging.set()


async def settled(attempt):
    try:
        return await attempt
    except (Timeout, DownstreamUnavailable) as error:
        return error


async def test_the_default_deadline_is_three_seconds_within_fifty_milliseconds():
    kms = FakeKms()
    async with running(kms=kms) as world:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with hanging(kms), pytest.raises(Timeout):
            await world.issue()
        elapsed_s = loop.time() - began
        kms.hanging.set()

    assert 2.95 < elapsed_s < 3.05


async def test_a_failing_engine_is_a_503_and_is_not_asked_again():
    kms = FakeKms()
    async with running(quick(), kms=kms) as world:
        kms.failing, calls = True, kms.calls
        with pytest.raises(DownstreamUnavailable):
            await world.issue()
        assert kms.calls == calls + 1
        kms.failing = False

        assert await world.issue()


async def test_one_probe_goes_out_every_five_seconds_and_a_good_one_closes_the_breaker():
    class Engine(FakeKms):
        inline = True

    kms = Engine()
    kms.open((ED25519,), NOW)
    gate = KmsGate(Inventory("svc-test", LoopClock(0.0)), kms, KmsLimits())
    kid = kms.public_keys()[0].kid
    kms.failing = True
    for _ in range(20):
        await settled(gate.sign(kid, b"m"))
    assert not gate.usable
    calls = kms.calls
    await asyncio.sleep(4.9)
    await settled(gate.sign(kid, b"m"))
    assert kms.calls == calls
    kms.failing = False
    await asyncio.sleep(0.2)

    assert ed25519.holds(kms.public_keys()[0].public, b"m", await gate.sign(kid, b"m"))
    assert gate.usable


async def test_a_rotation_never_labels_a_signature_with_another_kid():
    async with running() as world:
        issued, stop = [], asyncio.Event()

        async def issue_on():
            while not stop.is_set():
                issued.append(await world.issue())

        issuing = [asyncio.get_running_loop().create_task(issue_on()) for _ in range(4)]
        for _ in range(5):
            await world.api.rotate(p.Rotate(), world.operator)
        stop.set()
        await asyncio.wait(issuing)
        kids = {decode(token).root.kid for token in issued}
        alive = {key.kid for key in (await world.api.keys(p.GetKeys())).keys}
        verdicts = [await world.verdict(token) for token in issued]

    assert len(alive) == 6
    assert kids <= alive
    assert all(verdict.ok for verdict in verdicts)


class Mislabelling(LocalKms):
    """A wrong twin: signs with whatever key is newest, whichever was named."""

    def sign(self, kid: str, message: bytes) -> bytes:
        return self._keys[0].sign(message)


@pytest.mark.parametrize(("engine", "good"), [(LocalKms, True), (Mislabelling, False)])
async def test_a_mint_begun_before_a_rotation_ends_well_and_a_mislabelling_store_is_found(engine, good):
    async with running(kms=engine()) as world:
        book = world.service.book
        held = world.service.verifier.open(world.operator_token)
        root = root_of(p.Issue("a", "svc-mailbox"), held, book.view.value, NOW, bytes(16))
        await world.api.rotate(p.Rotate(), world.operator)
        verdict = await world.verdict(encode(await book.sign(root)))

    assert verdict.ok is good


def test_a_key_signs_under_its_own_name_only_and_older_generations_are_destroyed():
    kms = LocalKms()
    kms.open((ED25519,), NOW)
    (first,) = kms.public_keys()
    kms.rotate((ED25519,), NOW + 1)
    assert ed25519.holds(first.public, b"m", kms.sign(first.kid, b"m"))
    kms.rotate((ED25519,), NOW + 2)

    with pytest.raises(KmsFailed):
        kms.sign(first.kid, b"m")
    assert [key.nbf for key in kms.public_keys()] == [NOW + 2, NOW + 1]


def test_keys_are_sealed_at_rest_and_come_back_with_the_secret_alone(tmp_path):
    path = tmp_path / "keys.sealed"
    kms = LocalKms(Seal(path, b"secret"))
    kms.open((ED25519, HYBRID), NOW)
    again = LocalKms(Seal(path, b"secret"))
    again.open((ED25519, HYBRID), NOW + 9)
    assert again.public_keys() == kms.public_keys()
    seeds = [key.kept.seed for key in kms._keys]
    assert not any(seed in path.read_bytes() for seed in seeds)
    assert path.stat().st_mode & 0o077 == 0

    with pytest.raises(KmsFailed):
        LocalKms(Seal(path, b"other")).open((ED25519,), NOW)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(KmsFailed):
        LocalKms(Seal(path, b"secret")).open((ED25519,), NOW)


def test_the_data_directory_has_a_sealing_secret_of_its_own(tmp_path):
    secret = sealing_secret(tmp_path / "passport")

    assert sealing_secret(tmp_path / "passport") == secret
    assert (tmp_path / "passport" / "sealing.key").stat().st_mode & 0o077 == 0


def test_only_classical_keys_sign_on_the_loop():
    classical, hybrid = LocalKms(), LocalKms()
    classical.open((ED25519,), NOW)
    hybrid.open((ED25519, HYBRID), NOW)

    assert (classical.inline, hybrid.inline) == (True, False)


# --- a hardware module
# -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    """A software module with an empty token for each test; its library reads its settings once a process."""
    pytest.importorskip("pkcs11", reason="python-pkcs11 is not installed")
    if not SOFTHSM.exists():
        pytest.skip("SoftHSM2 is not installed")
    folder = tmp_path_factory.mktemp("softhsm")
    (folder / "tokens").mkdir()
    (folder / "softhsm2.conf").write_text(f"directories.tokendir = {folder}/tokens\nobjectstore.backend = file\n")
    os.environ["SOFTHSM2_CONF"] = str(folder / "softhsm2.conf")
    for label in ("alone", "ended", "served"):
        command = ["softhsm2-util", "--init-token", "--free", "--label", label, "--pin", "1234", "--so-pin", "1234"]
        subprocess.run(command, check=True, capture_output=True)
    yield SOFTHSM
    del os.environ["SOFTHSM2_CONF"]


def test_a_hardware_module_makes_signs_rotates_and_remembers(module):
    from penstock.services.passport.kms_pkcs11 import Pkcs11Kms

    kms = Pkcs11Kms(module, "alone", "1234")
    kms.open((ED25519,), NOW)
    (first,) = kms.public_keys()
    assert ed25519.holds(first.public, b"message", kms.sign(first.kid, b"message"))
    kms.rotate((ED25519,), NOW + 1)
    second = kms.public_keys()[0]
    assert ed25519.holds(first.public, b"message", kms.sign(first.kid, b"message"))
    kms.rotate((ED25519,), NOW + 2)

    assert [key.nbf for key in kms.public_keys()] == [NOW + 2, NOW + 1]
    assert kms.public_keys()[1] == second
    with pytest.raises(KmsFailed):
        kms.sign(first.kid, b"message")
    with pytest.raises(KmsFailed):
        kms.rotate((ED25519, HYBRID), NOW)
    kms.close()


def test_a_module_that_ended_our_session_is_asked_again_by_the_next_signature(module):
    from pkcs11.exceptions import SessionHandleInvalid

    from penstock.services.passport.kms_pkcs11 import Pkcs11Kms

    class Ended:
        """What a restart of the module leaves of a session."""

        def get_key(self, **_which):
            raise SessionHandleInvalid

    kms = Pkcs11Kms(module, "ended", "1234")
    kms.open((ED25519,), NOW)
    key = kms.public_keys()[0]
    kms._session.close()
    kms._session = Ended()
    with pytest.raises(KmsFailed, match="SessionHandleInvalid"):
        kms.sign(key.kid, b"message")

    assert ed25519.holds(key.public, b"message", kms.sign(key.kid, b"message"))
    kms.close()


async def test_the_service_issues_and_rotates_by_a_hardware_module(module):
    kms = KmsOptions(engine="pkcs11", module=module, token_label="served", pin="1234")
    async with running(options(kms=kms)) as world:
        before = await world.issue()
        rotated = await world.api.rotate(p.Rotate(), world.operator)
        after = await world.issue()

        assert decode(after).root.kid == rotated.kid != decode(before).root.kid
        assert [(await world.verdict(token)).ok for token in (before, after)] == [True, True]


def test_a_module_that_is_not_there_says_so(tmp_path):
    pytest.importorskip("pkcs11", reason="python-pkcs11 is not installed")
    from penstock.services.passport.kms_pkcs11 import Pkcs11Kms

    with pytest.raises(KmsFailed):
        Pkcs11Kms(tmp_path / "none.so", "penstock", "1234").open((ED25519,), NOW)
    with pytest.raises(KmsFailed):
        Pkcs11Kms(None, "penstock", "1234")
