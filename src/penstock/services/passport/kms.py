"""Where the signing keys are: one small contract, and the gate in front of it with a deadline and a breaker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from blake3 import blake3

from penstock.capability.trust import KeyRecord
from penstock.kernel.breaker import Breaker, BreakerPolicy, BreakerState
from penstock.kernel.errors import DownstreamUnavailable, PenstockError, Timeout
from penstock.kernel.log import Log

if TYPE_CHECKING:
    from penstock.kernel.inventory import Inventory

# So long a key store may be slower than it should before it is given up on.
SLOW_FOR_S: Final = 60.0
# The calls that the 95th percentile is taken of: short, so that a slow moment is soon forgotten.
SLOW_WINDOW_S: Final = 15.0
FOREVER_S: Final = 100 * 365 * 24 * 3600


class KmsFailed(Exception):
    """The engine could not do it; the message says why and holds no secret."""


class Kms(Protocol):
    """Holds private keys and never hands one out. Calls may block; the gate makes them on a thread."""

    @property
    def inline(self) -> bool:
        """Tell whether signing is plain computation of some microseconds.

        Then a thread would cost more than the work.
        """

    def open(self, algs: tuple[str, ...], now_s: int) -> None:
        """Find the keys of the last run, or make the first ones; every algorithm has one that signs."""

    def sign(self, kid: str, message: bytes) -> bytes:
        """Sign with exactly this key: one that is gone is an error, never another key's signature."""

    def rotate(self, algs: tuple[str, ...], now_s: int) -> None:
        """Make new keys; the ones before still sign what is under way, older ones are destroyed."""

    def public_keys(self) -> tuple[KeyRecord, ...]:
        """Return the public keys of all private ones, the signing ones first."""

    def close(self) -> None:
        """Let go of what is held open."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KmsLimits:
    """How long the engine may take, and when it is given up on for a while."""

    timeout_s: float = 3.0
    slo_s: float = 0.5
    threads: int = 4
    waiting: int = 16
    open_s: float = 5.0


class KmsGate:
    """Signs within the deadline or says no. There is no retry: the caller decides whether to ask again."""

    def __init__(self, inventory: Inventory, engine: Kms, limits: KmsLimits) -> None:
        """Declare the pool, the deadline and the counters."""
        self.engine = engine
        # What the engine had when it was opened or rotated last: to ask it again may block, as a signature may.
        self.public_keys: tuple[KeyRecord, ...] = ()
        self._is_open = False
        self._log = Log(inventory.service)
        self._limits = limits
        self._clock: Callable[[], float] = inventory.clock.monotonic
        self._pool = inventory.pool("kms", threads=limits.threads, capacity=limits.waiting)
        inventory.timeout("kms", limits.timeout_s, "504; five in a row open the breaker")
        metrics = inventory.metrics
        self.breaker = Breaker(
            "kms",
            BreakerPolicy(
                window_s=SLOW_WINDOW_S,
                p95_s=limits.slo_s,
                p95_for_s=SLOW_FOR_S,
                timeouts_in_a_row=5,
                open_s=limits.open_s,
                probes=1,
            ),
        )
        self._latency = metrics.histogram("kms_call_latency_seconds", "How long the engine took to sign.", op="sign")
        self._timeouts = metrics.counter("io_timeouts_total", "Deadlines that passed.", op="kms")
        self._failures = metrics.counter("kms_failures_total", "Calls of the engine that failed.", op="sign")
        metrics.gauge(
            "kms_breaker_open", "Whether the engine is given up on for now.", read=lambda: float(not self.usable)
        )

    @property
    def usable(self) -> bool:
        """Tell whether the breaker lets calls through."""
        return self.breaker.state is not BreakerState.OPEN

    async def sign(self, kid: str, message: bytes) -> bytes:
        """Sign, or raise Timeout (504), or DownstreamUnavailable (503) at once while the breaker is open."""
        began = self._clock()
        if not self.breaker.allow(began):
            wait_s = self.breaker.retry_after_s(began)
            raise DownstreamUnavailable("The key store is given up on for now.", reason="kms_breaker", wait_s=wait_s)
        try:
            signature = await self._call(kid, message)
        except Timeout:
            self._timeouts.value += 1
            self.breaker.failure(self._clock(), timed_out=True, elapsed_s=self._clock() - began)
            raise
        except KmsFailed as exc:
            raise self._failed(began) from exc
        except BaseException:
            # Cancelled, or no place in the pool: the engine was not asked or did not answer, which says nothing of it.
            self.breaker.abandon()
            raise
        elapsed_s = self._clock() - began
        self.breaker.success(self._clock(), elapsed_s)
        self._latency.observe(elapsed_s)
        return signature

    def _failed(self, began: float) -> DownstreamUnavailable:
        self._failures.value += 1
        self.breaker.failure(self._clock(), elapsed_s=self._clock() - began)
        return DownstreamUnavailable("The key store failed.", reason="kms_failed")

    async def _call(self, kid: str, message: bytes) -> bytes:
        if self.engine.inline:
            return self.engine.sign(kid, message)
        return await self._pool.run("kms", self._limits.timeout_s, self.engine.sign, kid, message)

    async def open(self, algs: tuple[str, ...], now_s: int) -> None:
        """Open the engine; failing is a reason not to start."""
        self._is_open = True
        await self._administer(self.engine.open, algs, now_s)

    async def rotate(self, algs: tuple[str, ...], now_s: int) -> None:
        """Make new keys, within the same deadline."""
        await self._administer(self.engine.rotate, algs, now_s)

    async def _administer(self, act: Callable[[tuple[str, ...], int], None], algs: tuple[str, ...], now_s: int) -> None:
        def changed() -> tuple[KeyRecord, ...]:
            act(algs, now_s)
            return self.engine.public_keys()

        try:
            self.public_keys = await self._pool.run("kms", self._limits.timeout_s, changed)
        except KmsFailed as exc:
            raise DownstreamUnavailable(f"The key store failed: {exc}", reason="kms_failed") from exc

    async def close(self) -> None:
        """Let engine and threads go; one that does not answer now either ends with the process, and holds up nobody."""
        was_open, self._is_open = self._is_open, False
        try:
            if was_open:
                await self._pool.run("kms", self._limits.timeout_s, self.engine.close)
        except (KmsFailed, PenstockError) as error:
            self._log.warning("kms.not_closed", reason=str(error))
        finally:
            await self._pool.close()


def kid_of(public: bytes) -> str:
    """Name a key by what it is: the same key has the same name everywhere, and a name cannot be given twice."""
    return blake3(public, derive_key_context="penstock.kid").hexdigest(8)
