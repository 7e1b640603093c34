"""A start never believes a state that lost a revocation, an audit that lost a record, or a copied data directory."""

from __future__ import annotations

import shutil

import msgspec
import pytest

from penstock.contracts import passport as p
from penstock.kernel.errors import DownstreamUnavailable, Integrity, Unauthenticated
from penstock.services.passport.kms_local import LocalKms
from penstock.services.passport.recovery import LONG_MS, SHORT_MS, NotedRevocation, check_floors
from penstock.services.passport.state import IssuerState
from penstock.services.passport.store import FileStore, StateFile, read_state
from tests.services.passport import kit
from tests.services.passport.kit import START_S, options, running


async def refused(tmp_path) -> str:
    """Start, which has to fail; return why."""
    with pytest.raises(Integrity) as caught:
        async with running(options(tmp_path)):
            pytest.fail("it started")
    return str(caught.value.facts["reason"])


async def test_no_flipped_bit_of_the_state_brings_a_revoked_token_back(tmp_path):
    async with running(options(tmp_path)) as world:
        token = await world.issue(tenant="acme")
        await world.api.revoke(p.Revoke(tenant="acme"), world.operator)
    path = tmp_path / "passport" / "state.json"
    good = path.read_bytes()
    # Every bit of the revocation itself, and one bit of every eighth byte of the rest.
    place = good.index(b'"kept":[')
    spots = [(at, bit) for at in range(place, place + 120) for bit in range(8)]
    spots += [(at, at % 8) for at in range(0, len(good), 8)]
    for at, bit in spots:
        path.write_bytes(good[:at] + bytes([good[at] ^ 1 << bit]) + good[at + 1 :])
        with pytest.raises(Integrity):
            read_state(path)
    path.write_bytes(good.replace(b'"tenant"', b'"tenans"'))
    assert await refused(tmp_path) == "bad_state"
    path.write_bytes(good)

    async with running(options(tmp_path)) as world:
        assert (await world.verdict(token)).reason == "revoked"


async def test_a_state_that_lost_a_floor_refuses_to_start_though_its_checksum_is_right(tmp_path):
    async with running(options(tmp_path)) as world:
        await world.api.revoke(p.Revoke(tenant="acme"), world.operator)
        await world.api.revoke(p.Revoke(subject_ref="alice"), world.operator)
        store = world.service.book._store
        state = world.service.book.state
        lost = msgspec.structs.replace(state, kept=state.kept[1:])
        store.save(lost)

    assert await refused(tmp_path) == "lost_revocation"


async def test_keys_without_a_state_refuse_to_start(tmp_path):
    async with running(options(tmp_path)) as world:
        await world.api.revoke(p.Revoke(tenant="acme"), world.operator)
    (tmp_path / "passport" / "state.json").unlink()
    shutil.rmtree(tmp_path / "audit")

    assert await refused(tmp_path) == "lost_state"


async def test_keys_of_a_module_without_a_state_refuse_to_start_too(tmp_path):
    module = LocalKms()
    module.open(("ed25519",), int(START_S) - 1000)

    with pytest.raises(Integrity) as caught:
        async with running(options(tmp_path), kms=module):
            pytest.fail("it started")
    assert caught.value.facts["reason"] == "lost_state"


async def test_a_first_start_that_crashed_after_its_keys_were_made_can_be_repeated(tmp_path, monkeypatch):
    """The state is written before the first key: else a crash between the two would look like a lost state."""
    real = FileStore.save

    def save(store, state) -> None:
        if state.keys:
            raise OSError(5, "the machine went down")
        real(store, state)

    with monkeypatch.context() as patched:
        patched.setattr(FileStore, "save", save)
        with pytest.raises(DownstreamUnavailable):
            async with running(options(tmp_path)):
                pytest.fail("it started")
    assert (tmp_path / "passport" / "keys.sealed").exists()
    monkeypatch.setattr(kit, "START_S", START_S + 100)

    async with running(options(tmp_path)) as world:
        assert (await world.verdict(await world.issue())).ok


async def test_a_state_without_a_checksum_is_taken_over_and_written_with_one(tmp_path):
    async with running(options(tmp_path)) as world:
        token = await world.issue(tenant="acme")
        await world.api.revoke(p.Revoke(tenant="acme"), world.operator)
    path = tmp_path / "passport" / "state.json"
    state = msgspec.to_builtins(read_state(path))
    for added in ("audited", "attested", "place"):
        del state[added]
    # As it was written before: names instead of digests.
    state["kept"][0]["entry"]["value"] = state["feed"][0]["value"] = "acme"
    path.write_bytes(msgspec.json.encode(state))
    (tmp_path / "audit" / "passport.head").unlink()

    async with running(options(tmp_path)) as world:
        assert (await world.verdict(token)).reason == "revoked"
    assert msgspec.json.decode(path.read_bytes(), type=StateFile).format == 2


# --- a restored copy
# ---------------------------------------------------------------------------------------------------


async def test_a_restored_copy_of_the_data_directory_revives_nothing(tmp_path):
    live, copy = tmp_path / "live", tmp_path / "copy"
    async with running(options(live)) as world:
        token, other = await world.issue(tenant="a"), await world.issue(tenant="b")
        operator = world.operator_token
    shutil.copytree(live, copy)
    async with running(options(live)) as world:
        await world.api.revoke(p.Revoke(tenant="a"), world.operator)
    shutil.rmtree(live)
    shutil.copytree(copy, live)

    async with running(options(live)) as world:
        assert [(await world.verdict(each)).reason for each in (token, other, operator)] == ["revoked"] * 3
        assert (await world.verdict(await world.issue(tenant="a"))).ok
        assert world.service.trail.recent[-2].action == "restore"
        renewed, epoch = world.operator_token, world.service.book.state.current
    async with running(options(live)) as world:
        assert (world.operator_token, world.service.book.state.current) == (renewed, epoch)


async def test_who_restores_in_a_way_that_cannot_be_told_says_so_by_a_file(tmp_path):
    async with running(options(tmp_path)) as world:
        token = await world.issue()
    (tmp_path / "passport" / "restored").touch()

    async with running(options(tmp_path)) as world:
        assert (await world.verdict(token)).reason == "revoked"
    assert not (tmp_path / "passport" / "restored").exists()


async def test_a_start_from_where_it_was_revokes_nothing(tmp_path):
    async with running(options(tmp_path)) as world:
        token = await world.issue()

    async with running(options(tmp_path)) as world:
        assert (await world.verdict(token)).ok


# --- the comparison itself
# ---------------------------------------------------------------------------------------------

NOW_MS = int(START_S * 1000)


@pytest.mark.parametrize(("kind", "kept_ms"), [("tenant", SHORT_MS), ("tid", SHORT_MS), ("rid", LONG_MS)])
def test_a_revocation_is_missed_until_nothing_it_could_hit_is_alive(kind, kept_ms):
    noted = [NotedRevocation(NOW_MS, kind, "x", 3)]
    with pytest.raises(Integrity):
        check_floors(IssuerState(current=3), noted, NOW_MS + kept_ms - 200_000)

    check_floors(IssuerState(current=3), noted, NOW_MS + kept_ms)


@pytest.mark.parametrize(("issuer", "good"), [(4, False), (5, True), (6, True)])
def test_an_epoch_that_was_raised_stays_raised(issuer, good):
    noted = [NotedRevocation(NOW_MS, "epoch", "5", 5)]
    if good:
        check_floors(IssuerState(current=6, issuer=issuer), noted, NOW_MS)
        return
    with pytest.raises(Integrity):
        check_floors(IssuerState(current=6, issuer=issuer), noted, NOW_MS)


async def test_a_disk_without_room_does_not_stop_a_start_that_changes_nothing(tmp_path, monkeypatch):
    async with running(options(tmp_path)) as world:
        token = await world.issue()

    def full(*_args, **_kwargs):
        raise OSError(28, "no space left")

    monkeypatch.setattr("penstock.services.passport.store.write_private", full)
    async with running(options(tmp_path)) as world:
        assert (await world.verdict(token)).ok
        with pytest.raises(Unauthenticated):
            world.service.verifier.verify("psp1_x", p.RequestContext())
