"""A follower believes its source for as long as it is leased, never unlearns a revocation, and notices a gap."""

from __future__ import annotations

import msgspec
import pytest

from penstock.capability.following import Follower, Published, decode_published, from_file, from_passport
from penstock.capability.trust import Trust, record_of
from penstock.capability.verifier import CapabilityVerifier
from penstock.contracts.passport import Key, KeySet, Revocation, Revocations
from penstock.kernel.errors import DownstreamUnavailable, Malformed
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


@pytest.mark.real_loop
async def test_published_file_is_read_and_a_broken_one_is_a_failed_step(tmp_path):
    issuer = Issuer()
    path = tmp_path / "public.json"
    feed = Revocations(1, 1, 0, 5000, True, (Revocation(1, "tenant", "acme", 1, 0),))
    path.write_bytes(msgspec.json.encode(Published(KeySet((issuer.record().jwk(),)), feed)))
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
        record_of(Key(**{**msgspec.structs.asdict(key), **change}))
