"""Keeps a verifier's trust fresh: reads keys and revocations from the issuer, or from the file it publishes.

What was revoked never comes back, whatever the source says later. When the source is silent for longer than its
lease, the trust lapses by itself; nobody has to notice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from penstock.capability.floors import Floors, merged
from penstock.capability.trust import Trust, ring_of
from penstock.contracts.passport import GetKeys, GetRevocations, KeySet, Passport, Revocations
from penstock.kernel.child import Child
from penstock.kernel.clock import SYSTEM
from penstock.kernel.deadline import timeout
from penstock.kernel.errors import Malformed, PenstockError
from penstock.kernel.health import Gate
from penstock.kernel.log import Log
from penstock.kernel.metrics import Metrics
from penstock.kernel.pool import Pool

PERIOD_S: Final = 0.5
FETCH_S: Final = 2.0
# So often everything in force is read anew: what the issuer has dropped since is dropped here too.
WHOLE_S: Final = 600.0


class PublishedTrust(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All a verifier needs: the content of `public.json`."""

    # When the issuer last said that it lives; 0 for an answer that came from the issuer itself just now.
    at_ms: int
    keys: KeySet
    revocations: Revocations


Fetch: TypeAlias = Callable[[int], Awaitable[PublishedTrust]]
"""Reads what is published; the argument is the number of the last revocation that is known."""


def from_passport(passport: Passport) -> Fetch:
    """Read from the issuer over its contract."""

    async def fetch(since: int) -> PublishedTrust:
        keys = await passport.keys(GetKeys())
        return PublishedTrust(0, keys, await passport.revocations(GetRevocations(since)))

    return fetch


def from_file(path: Path, pool: Pool) -> Fetch:
    """Read the file the issuer rewrites at each change; it always holds everything in force."""

    async def fetch(_since: int) -> PublishedTrust:
        data = await pool.run("capability_file", FETCH_S, path.read_bytes)
        published = decode_published(data)
        if not published.at_ms:
            raise Malformed("The published keys do not say when their issuer lived.", reason="bad_public_file")
        return published

    return fetch


def decode_published(data: bytes) -> PublishedTrust:
    """Read `public.json`."""
    try:
        return msgspec.json.decode(data, type=PublishedTrust)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise Malformed("The published keys cannot be read.", reason="bad_public_file") from exc


class Heartbeats:
    """Says since when a published file may be believed: since its issuer's heartbeat was last seen to change.

    The time in the file is the issuer's wall clock, which may step. So it is compared with ours only where the
    interval it must lie in is known: it changed after the reading before. At the first reading there is none, and its
    age counts.
    """

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._beat = 0
        self._seen_at = float("-inf")
        self._read_at = float("-inf")

    def leased_from(self, beat: int, asked_at: float) -> float:
        """Take the heartbeat of one reading; returns the monotonic time the lease counts from."""
        if not beat:
            return asked_at
        if beat != self._beat:
            age_s = max(0.0, self._wall() - beat / 1000)
            self._beat, self._seen_at = beat, max(self._read_at, asked_at - age_s)
        self._read_at = asked_at
        return self._seen_at


class Follower:
    """One source, one trust; the only writer of that trust."""

    def __init__(
        self,
        trust: Trust,
        fetch: Fetch,
        metrics: Metrics,
        *,
        gate: Gate | None = None,
        wall: Callable[[], float] = SYSTEM.wall,
    ) -> None:
        """Begin without a lease: nothing is believed before the first answer. `gate` shuts before the lease ends."""
        trust.lease_until = float("-inf")
        self.trust = trust
        self._fetch = fetch
        self._gate = gate
        # The number the source gave last. Not the highest ever seen: a source that went back counts from there.
        self._since = 0
        self._whole_at = float("-inf")
        self._beats = Heartbeats(wall)
        self._log = Log(metrics.service)
        self._failures = metrics.counter("revocation_feed_failures_total", "Reads of the revocation feed that failed.")

    async def run(self, child: Child) -> None:
        """Read again and again until the service drains."""
        while True:
            await self.step(child.clock.monotonic)
            child.announce()
            if await child.shutdown.sleep(PERIOD_S):
                return

    async def step(self, monotonic: Callable[[], float]) -> bool:
        """Read once; False when nothing could be read, which the lease will tell if it lasts."""
        asked_at = monotonic()
        since = 0 if asked_at >= self._whole_at + WHOLE_S else self._since
        try:
            async with timeout("revocations", FETCH_S):
                published = await self._fetch(since)
                if _has_gap(published.revocations, since) or self._is_another(published):
                    since, published = 0, await self._fetch(0)
            self._adopt(published, asked_at)
            self._whole_at = self._whole_at if since else asked_at
        except (PenstockError, OSError) as error:
            self._failures.value += 1
            self._log.warning("capability.feed_failed", reason=str(error))
            self._tell(monotonic())
            return False
        self._tell(monotonic())
        return True

    def _is_another(self, published: PublishedTrust) -> bool:
        """Tell whether none of the keys is one we know: then no old token verifies, and the counter began anew."""
        known = self.trust.keys
        return bool(known) and not any(key.kid in known for key in published.keys.keys)

    def _tell(self, now: float) -> None:
        if self._gate is not None:
            # Readiness goes first: shut when the next reading, at its latest, would come too late.
            leased = now + PERIOD_S + FETCH_S < self.trust.lease_until
            self._gate.set(is_open=leased and self.trust.known, why="" if leased else "revocation_feed")

    def _adopt(self, published: PublishedTrust, asked_at: float) -> None:
        """Swap in what came; the lease counts from the asking, because the answer may have been on its way for long."""
        trust, feed = self.trust, published.revocations
        known = Floors() if self._is_another(published) else trust.floors
        keys, floors = ring_of(published.keys), following(known, feed)
        if keys != trust.keys or floors != trust.floors or asked_at >= trust.lease_until:
            trust.swap(keys, floors)
        # A file can be read long after its issuer has died, so its lease counts from the issuer's last heartbeat.
        trust.lease_until = self._beats.leased_from(published.at_ms, asked_at) + feed.lease_ms / 1000
        self._since = feed.seq


def following(known: Floors, feed: Revocations) -> Floors:
    """Return the floors after a feed; a snapshot replaces the list, unless its issuer went back in time."""
    if feed.snapshot and feed.seq >= known.seq:
        known = Floors(known.current, known.issuer, feed.seq)
    return merged(known, feed.entries, current=feed.current_epoch, issuer=feed.floor)


def _has_gap(feed: Revocations, since: int) -> bool:
    """Tell whether something between what was known and what came is missing, at the front or altogether."""
    if feed.snapshot:
        return False
    return min((entry.seq for entry in feed.entries), default=feed.seq + 1) > since + 1
