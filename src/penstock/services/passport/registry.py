"""Registry Sync: fetches the signed issuer policy from a file or a URL; unsigned, older or malformed is refused."""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.capability import ed25519
from penstock.kernel.backoff import Doubling
from penstock.kernel.deadline import timeout
from penstock.kernel.errors import DownstreamUnavailable, Malformed, PenstockError, Timeout
from penstock.kernel.log import Log
from penstock.net.calls.client import HttpClient
from penstock.services.passport.policy import Descriptor, read, sign
from penstock.services.passport.store import write_private

if TYPE_CHECKING:
    from penstock.kernel.backoff import Rng
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.pool import Pool
    from penstock.services.passport.book import Book

FETCH_BYTES_MAX: Final = 64 * 1024
RETRY: Final = Doubling(0.5, 1.0, cap_s=30.0)

Fetch: TypeAlias = Callable[[], Awaitable[tuple[bytes, bytes]]]
"""Returns the signed descriptor and the public key it must be signed with."""


def anchor_of(text: str) -> bytes:
    """Read the key a registry signs with, in hex."""
    try:
        return ed25519.read_public(bytes.fromhex(text))
    except ValueError as exc:
        raise Malformed("The registry's public key is not hex.", reason="bad_key") from exc


def from_ram() -> Fetch:
    """Be a registry of one's own that ends with the process."""
    seed = os.urandom(ed25519.SEED_BYTES)
    data, anchor = sign(Descriptor(version=1), seed), ed25519.public_of(seed)

    async def fetch() -> tuple[bytes, bytes]:  # noqa: RUF029 - the shape of a source
        return data, anchor

    return fetch


def from_data_dir(folder: Path, pool: Pool, seconds: float) -> Fetch:
    """Be a registry of one's own, made and self-signed at the first start."""
    file, key = folder / "registry.json", folder / "registry.pub"

    def load() -> tuple[bytes, bytes]:
        if not file.exists():
            seed = os.urandom(ed25519.SEED_BYTES)
            write_private(key, ed25519.public_of(seed).hex().encode("ascii"))
            write_private(folder / "registry.key", seed.hex().encode("ascii"))
            write_private(file, sign(Descriptor(version=1), seed))
        return file.read_bytes(), anchor_of(key.read_text(encoding="ascii"))

    async def fetch() -> tuple[bytes, bytes]:
        return await pool.run("registry", seconds, load)

    return fetch


def from_file(path: Path, anchor: bytes, pool: Pool, seconds: float) -> Fetch:
    """Read a file that somebody else signs."""

    async def fetch() -> tuple[bytes, bytes]:
        return await pool.run("registry", seconds, path.read_bytes), anchor

    return fetch


def from_url(url: str, anchor: bytes, client: HttpClient, seconds: float) -> Fetch:
    """Ask a registry; its answer needs no trusted transport, because it is signed."""

    async def fetch() -> tuple[bytes, bytes]:
        answer = await client.request("GET", url, timeout_s=seconds)
        if answer.status != 200:
            raise DownstreamUnavailable(f"The registry answered {answer.status}.", reason="status")
        return answer.body[: FETCH_BYTES_MAX + 1], anchor

    return fetch


@dataclass(frozen=True, slots=True)
class PolicySource:
    """Where a policy comes from, and how the one writer of the state is told which version was seen."""

    fetch: Fetch
    remember: Callable[[int], Awaitable[object]]


class RegistrySync:
    """Keeps the policy fresh: jittered polls, backoff after failures; the last good policy stays in force."""

    def __init__(
        self, inventory: Inventory, book: Book, source: PolicySource, *, poll_s: float, timeout_s: float
    ) -> None:
        self._book = book
        self._fetch = source.fetch
        self._remember = source.remember
        self._poll_s = poll_s
        self._timeout_s = inventory.timeout("registry", timeout_s, "the last policy stays; tried again")
        self._rng: Rng = random.SystemRandom()
        self._log = Log(inventory.service)
        self._metrics = inventory.metrics
        self._timeouts = inventory.metrics.counter("io_timeouts_total", "Deadlines that passed.", op="registry")
        self._retries = inventory.metrics.counter(
            "backoff_retries_total", "Retries by what came of them.", op="registry", result="failure"
        )
        self.failures_in_a_row = 0
        # Why the last try failed, in a word; empty when it did not.
        self.refused_as = ""

    async def run(self, child: Child) -> None:
        """Fetch until the service drains; the first try, good or not, is waited for at the start."""
        while True:
            good = await self.step()
            child.announce()
            if await child.shutdown.sleep(self._pause_s(good=good)):
                return

    def _pause_s(self, *, good: bool) -> float:
        if good:
            return self._poll_s * (0.9 + 0.2 * self._rng.random())
        self._retries.value += 1
        return RETRY.delay(self.failures_in_a_row - 1, self._rng)

    async def step(self) -> bool:
        """Fetch, check and adopt once; False when the old policy stays because this one was refused."""
        try:
            async with timeout("registry", self._timeout_s):
                data, anchor = await self._fetch()
                await self._adopt(data, anchor)
        except (PenstockError, OSError) as error:
            self._refused(error)
            return False
        self.failures_in_a_row, self.refused_as = 0, ""
        return True

    async def _adopt(self, data: bytes, anchor: bytes) -> None:
        descriptor = read(data, anchor, self._book.state.policy_version)
        policy = self._book.view.value.policy
        if policy is None or descriptor.version > policy.version:
            await self._remember(descriptor.version)
            self._book.adopt(descriptor)

    def _refused(self, error: Exception) -> None:
        self.failures_in_a_row += 1
        if isinstance(error, Timeout):
            self._timeouts.value += 1
        facts = error.facts if isinstance(error, PenstockError) else {}
        reason = self.refused_as = str(facts.get("reason", "unreachable"))
        self._metrics.counter("registry_failures_total", "Policies refused or not fetched.", reason=reason).value += 1
        self._log.warning("registry.refused", reason=reason, detail=str(error))
