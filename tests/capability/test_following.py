"""A follower believes its source for as long as it is leased, never unlearns a revocation, and notices a gap."""

from __future__ import annotations

import msgspec
import pytest

from penstock.capability.following import (
    Follower,
    PublishedTrust,
    decode_published,
    from_file,
    from_passport,
)
from penstock.capability.trust import Trust, record_of
from penstock.capability.verifier import CapabilityVerifier
from penstock.contracts.passport import (
    Jwk,
    KeySet,
    Revocation,
    Revocations,
)
from penstock.kernel.errors import DownstreamUnavailable, Malformed
from penstock.kernel.health import Health
from penstock.kernel.metrics import Metrics
from penstock.kernel.pool import Pool
from tests.capability.kit import NOW, Issuer


class Source:
    """An issuer's feed, as scripted: it can fail, skip and go back."""

    def __init__(self, issuer: Issuer) -> None:
        self.keys_ = KeySet((issuer.record().jwk(),))
        self.entries: list[Revocation] = []
        self.lost_before = 0
        self.down = False

    def revoke(self, kind: str, value: str) -> None:
        number = len(self.entries) + 1
        self.entries.append(Revocation(number, kind, value, number, NOW * 1000))

    async def keys(self, _request) -> KeySet:
        if self.down:
            raise DownstreamUnavailable
        return self.keys_

    async def revocations(self, request) -> Revocations:
        snapshot = request.since < self.lost_before or request.since > len(self.entries)
        entries = [e for e in self.entries if snapshot or e.seq > request.since]
        return Revocations(len(self.entries), len(self.entries), 0, 5000, snapshot, tuple(entries))


class World:
    def __init__(self) -> None:
        self.issuer = Issuer()
        self.source = Source(self.issuer)
        self.trust = Trust()
        self.follower = Follower(self.trust, from_passport(self.source), Metrics("svc-test"))
        self.verifier = self.issuer.verifier = CapabilityVerifier(self.trust, self.issuer.clock)

    async def step(self) -> bool:
        return await self.follower.step(self.issuer.clock.monotonic)


async def test_nothing_is_believed_before_the_first_answer():
    world = World()
    token = world.issuer.token()
    assert world.issuer.verdict(token) == "unauthenticated:unknown_kid"
    await world.step()

    assert world.issuer.verdict(token) == "ok"


async def test_a_revocation_arrives_with_the_next_step():
    world = World()
    token = world.issuer.token()
    await world.step()
    assert world.issuer.verdict(token) == "ok"
    world.source.revoke("tenant", "acme")
    await world.step()

    assert world.issuer.verdict(token) == "unauthenticated:revoked"


async def test_a_silent_source_lapses_and_comes_back():
    world = World()
    token = world.issuer.token()
    await world.step()
    world.source.down = True
    world.issuer.clock.advance(5)
    assert not await world.step()
    assert world.issuer.verdict(token) == "not_ready:revocation_feed"
    world.source.down = False
    await world.step()

    assert world.issuer.verdict(token) == "ok"


async def test_a_reader_that_fell_behind_takes_the_snapshot_and_keeps_what_it_knows():
    world = World()
    await world.step()
    world.source.revoke("tenant", "acme")
    await world.step()
    world.source.revoke("tid", "ff")
    world.source.lost_before = 99
    await world.step()

    assert set(world.trust.floors.in_force) == {("tenant", "acme"), ("tid", "ff")}


async def test_an_issuer_that_went_back_in_time_unlearns_nothing():
    world = World()
    token = world.issuer.token()
    world.source.revoke("tenant", "acme")
    await world.step()
    world.source.entries.clear()
    await world.step()

    assert world.issuer.verdict(token) == "unauthenticated:revoked"
    assert world.trust.floors.current == 1


async def test_an_issuer_that_went_back_is_followed_from_where_it_is():
    world = World()
    for number in range(5):
        world.source.revoke("tid", f"{number:032x}")
    await world.step()
    world.source.entries.clear()
    world.source.revoke("tenant", "first")
    await world.step()
    for number in range(6):
        world.source.revoke("tenant", f"later-{number}")
    await world.step()

    assert {("tenant", "first"), *(("tenant", f"later-{n}") for n in range(6))} <= set(world.trust.floors.in_force)


async def test_an_issuer_with_other_keys_begins_anew_and_one_with_the_same_does_not():
    """An issuer that keeps nothing and was restarted: its counter is young, and no token of the old keys verifies."""
    world = World()
    world.source.revoke("tenant", "acme")
    world.source.revoke("epoch", "2")
    await world.step()
    reborn = Issuer(seed=bytes(range(1, 33)))
    world.source.keys_ = KeySet((reborn.record("k2").jwk(),))
    world.source.entries.clear()
    await world.step()
    young = reborn.token(kid="k2")

    assert world.issuer.verdict(young) == "ok"
    assert world.issuer.verdict(world.issuer.token()) == "unauthenticated:unknown_kid"


async def test_a_feed_that_counts_on_without_its_entries_is_read_whole():
    world = World()
    await world.step()
    world.source.revoke("tenant", "acme")
    entries, honest = world.source.entries, world.source.revocations

    async def forgetful(request) -> Revocations:
        whole = await honest(request)
        return whole if request.since == 0 else msgspec.structs.replace(whole, entries=())

    world.source.revocations = forgetful
    await world.step()
    world.source.revoke("tid", "aa")
    await world.step()

    assert {(entry.kind, entry.value) for entry in entries} == set(world.trust.floors.in_force)


async def test_what_the_issuer_has_dropped_is_dropped_within_ten_minutes_and_little_is_read_meanwhile():
    world = World()
    asked = []
    honest = world.source.revocations

    async def listened(request) -> Revocations:
        asked.append(request.since)
        return await honest(request)

    world.source.revocations = listened
    world.source.revoke("tid", "aa")
    world.source.revoke("tid", "bb")
    await world.step()
    await world.step()
    world.source.entries[0] = world.source.entries[1]  # what it keeps no longer has the first
    world.source.lost_before = 1
    world.issuer.clock.advance(601)
    await world.step()

    assert asked == [0, 2, 0]
    assert set(world.trust.floors.in_force) == {("tid", "bb")}


async def test_the_gate_is_open_while_the_lease_holds_and_shuts_before_it_ends():
    world = World()
    gate = Health("svc-test").gate("capability")
    follower = Follower(world.trust, from_passport(world.source), Metrics("svc-test"), gate=gate)
    assert not gate.open
    await follower.step(world.issuer.clock.monotonic)
    assert gate.open
    world.source.down = True
    world.issuer.clock.advance(2)
    await follower.step(world.issuer.clock.monotonic)
    assert gate.open
    world.issuer.clock.advance(1)
    await follower.step(world.issuer.clock.monotonic)

    assert (gate.open, gate.why) == (False, "revocation_feed")
    assert world.issuer.clock.monotonic() < world.trust.lease_until


async def test_published_file_is_read_and_a_broken_one_is_a_failed_step(tmp_path):
    issuer = Issuer()
    path = tmp_path / "public.json"
    feed = Revocations(1, 1, 0, 5000, True, (Revocation(1, "tenant", "acme", 1, 0),))
    path.write_bytes(msgspec.json.encode(PublishedTrust(NOW * 1000, KeySet((issuer.record().jwk(),)), feed)))
    async with Pool("file", threads=1, capacity=1) as pool:
        trust = Trust()
        follower = Follower(trust, from_file(path, pool), Metrics("svc-test"))
        assert await follower.step(issuer.clock.monotonic)
        assert CapabilityVerifier(trust, issuer.clock).trust.floors.hits(issuer.root(), ())
        path.write_bytes(b"{")
        assert not await follower.step(issuer.clock.monotonic)
        path.unlink()
        assert not await follower.step(issuer.clock.monotonic)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"keys":{"keys":[]}}'])
def test_what_is_no_published_file_is_refused(data):
    with pytest.raises(Malformed):
        decode_published(data)


@pytest.mark.parametrize(
    "change",
    [
        {"kty": "RSA"},
        {"alg": "none"},
        {"crv": "X25519"},
        {"x": "AAAA"},
        {"x": "!"},
        {"x": "A" * 43},
        {"x": "AQ" + "A" * 41},
    ],
)
def test_a_weak_or_misspelt_key_is_refused_when_it_is_read(change):
    key = Issuer().record().jwk()

    with pytest.raises(Malformed):
        record_of(Jwk(**{**msgspec.structs.asdict(key), **change}))


# --- a file whose issuer may be dead
# -----------------------------------------------------------------------------------


class Published:
    """A published file, as its reader sees it at each reading."""

    def __init__(self, tmp_path) -> None:
        self.issuer = Issuer()
        self.clock = self.issuer.clock
        self.path = tmp_path / "public.json"
        self.trust = Trust()
        self.verifier = self.issuer.verifier = CapabilityVerifier(self.trust, self.clock)
        self.token = self.issuer.token()

    def beat(self, at_s: float) -> None:
        feed = Revocations(1, 1, 0, 5000, True, ())
        keys = KeySet((self.issuer.record().jwk(),))
        self.path.write_bytes(msgspec.json.encode(PublishedTrust(int(at_s * 1000), keys, feed)))

    def follower(self, pool: Pool) -> Follower:
        return Follower(self.trust, from_file(self.path, pool), Metrics("svc-test"), wall=self.clock.wall)


async def test_a_file_whose_issuer_died_lapses_however_often_it_is_read(tmp_path):
    world = Published(tmp_path)
    world.beat(NOW)
    async with Pool("file", threads=1, capacity=1) as pool:
        follower = world.follower(pool)
        for _ in range(9):
            assert await follower.step(world.clock.monotonic)
            assert world.issuer.verdict(world.token) == "ok"
            world.clock.advance(0.5)
        world.clock.advance(0.5)
        await follower.step(world.clock.monotonic)
        assert world.issuer.verdict(world.token) == "not_ready:revocation_feed"
        world.beat(NOW + 5)
        await follower.step(world.clock.monotonic)

        assert world.issuer.verdict(world.token) == "ok"


async def test_a_file_that_was_dead_before_anybody_read_it_is_not_believed(tmp_path):
    world = Published(tmp_path)
    world.beat(NOW - 60)
    async with Pool("file", threads=1, capacity=1) as pool:
        await world.follower(pool).step(world.clock.monotonic)

        assert world.issuer.verdict(world.token) == "not_ready:revocation_feed"


@pytest.mark.parametrize("step_s", [-7200.0, 600.0])
async def test_a_step_of_the_clock_ends_no_lease_of_an_issuer_that_lives(tmp_path, step_s):
    world = Published(tmp_path)
    async with Pool("file", threads=1, capacity=1) as pool:
        follower = world.follower(pool)
        for second in range(12):
            stepped = step_s if second >= 6 else 0.0
            # The issuer's clock steps a second before ours does.
            world.beat(NOW + second + (step_s if second >= 5 else 0.0))
            world.clock._wall = NOW + second + stepped
            await follower.step(world.clock.monotonic)
            assert world.issuer.verdict(world.token) == "ok"
            world.clock.advance(1)


async def test_a_reader_that_was_stopped_does_not_believe_a_heartbeat_for_longer_than_it_lasts(tmp_path):
    world = Published(tmp_path)
    world.beat(NOW)
    async with Pool("file", threads=1, capacity=1) as pool:
        follower = world.follower(pool)
        await follower.step(world.clock.monotonic)
        world.beat(NOW + 1)
        world.clock.advance(20)
        await follower.step(world.clock.monotonic)

        assert world.issuer.verdict(world.token) == "not_ready:revocation_feed"


async def test_a_file_without_a_heartbeat_is_a_failed_reading(tmp_path):
    world = Published(tmp_path)
    world.beat(0)
    async with Pool("file", threads=1, capacity=1) as pool:
        assert not await world.follower(pool).step(world.clock.monotonic)
