"""All nodes of a swarm: they join a few at a time, and obey."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from blake3 import blake3

from penstock.config import Sources, listener_settings, load, node_schema
from penstock.contracts.call import Call
from penstock.contracts.dht import Find
from penstock.kernel.clock import SYSTEM
from penstock.kernel.deadline import pause
from penstock.kernel.pool import Pool
from penstock.kernel.runtime import GC_THRESHOLDS, freeze_after_start, raise_fd_limit, tune_process
from penstock.services.dht.config import TABLE, DhtOptions
from penstock.services.dht.service import DhtSurroundings
from penstock.services.dht.swarm.key import SwarmKey
from penstock.services.dht.swarm.member import SwarmMember
from penstock.services.dht.swarm.options import SwarmOptions, peer_conns

if TYPE_CHECKING:
    from penstock.config import ListenerSettings

SEEDS: Final = 3
AT_A_TIME: Final = 4
JOIN_S: Final = 60.0
LOOK_S: Final = 0.02
DESCRIPTORS_WANTED: Final = 1 << 20


class SwarmFind(NamedTuple):
    """One lookup in the swarm; `cpu_ms` is what all its nodes together worked meanwhile."""

    took_ms: float
    cpu_ms: float
    messages: int
    found: bool


class Swarm:
    """N nodes in this process; they share one verify pool, one capability verifier and one key."""

    def __init__(self, options: SwarmOptions) -> None:
        """Fit the nodes to the descriptors; raises ValueError with a sentence when they do not fit."""
        tune_process()
        # A collection visits what was made since the last one, and stops the loop meanwhile. N nodes make N times as
        # much as one, and hardly any of it is garbage.
        gc.set_threshold(GC_THRESHOLDS[0] * options.nodes, *GC_THRESHOLDS[1:])
        self._options = options
        self._conns = peer_conns(options.nodes, raise_fd_limit(DESCRIPTORS_WANTED))
        self._verify = Pool("verify", threads=1, capacity=256 * max(1, options.nodes // 8))
        self.key = SwarmKey(SYSTEM)
        self.members: list[SwarmMember] = []
        self.rng = random.Random(options.seed)  # noqa: S311 - a swarm is repeatable
        self._listener = _loopback()

    async def start(self, progress: Callable[[int], None] = lambda _count: None) -> None:
        """Start the nodes, a few joining at a time: all at once would only wait for each other's signatures."""
        for number in range(self._options.nodes):
            self.members.append(self._member(number))
            await self.members[-1].start()
            await self._wait_until(lambda: sum(not each.ready for each in self.members) < AT_A_TIME)
            progress(number + 1)
        await self._wait_until(lambda: all(each.ready for each in self.members))
        freeze_after_start()

    def _member(self, number: int) -> SwarmMember:
        known = self.rng.sample(self.members, min(SEEDS, len(self.members)))
        seeds = tuple(("127.0.0.1", each.service.state.port) for each in known)
        options = DhtOptions(
            listener=self._listener, seeds=seeds, peer_conns=self._conns, required=min(SEEDS, max(1, number))
        )
        identity = blake3(f"swarm {self._options.seed} {number}".encode()).digest()
        around = DhtSurroundings(verifier=self.key.verifier, verify_pool=self._verify, seed=identity)
        return SwarmMember(number, options, around, SYSTEM)

    async def _wait_until(self, done: Callable[[], bool]) -> None:
        for _ in range(int(JOIN_S / LOOK_S)):
            if done():
                return
            await pause("swarm", LOOK_S)
        late = [f"{each.number}: {each.service.state.readiness.reason}" for each in self.members if not each.ready]
        raise TimeoutError(f"{len(late)} nodes did not join within {JOIN_S:.0f} s, such as {late[0]}")

    async def find(self, key: str) -> SwarmFind:
        """Look a key up from a random live node; say what it took of the clock and of the processor."""
        live = [each for each in self.members if each.alive and not each.silent]
        api = self.rng.choice(live).service.api
        began, worked = time.perf_counter(), time.process_time()
        found = await api.find(Find(key), Call(self.key.token))
        took_ms, cpu_ms = (time.perf_counter() - began) * 1000, (time.process_time() - worked) * 1000
        return SwarmFind(round(took_ms, 3), round(cpu_ms, 3), found.messages, bool(found.providers))

    # --- commands -----------------------------------------------------------------------------------------------

    async def kill(self, numbers: Iterable[int]) -> None:
        """Kill nodes: their connections are reset."""
        for number in numbers:
            await self.members[number].kill()

    async def blackhole(self, numbers: Iterable[int]) -> None:
        """Silence nodes: their connections stay open."""
        for number in numbers:
            self.members[number].blackhole()

    async def revive(self, numbers: Iterable[int]) -> None:
        """Bring nodes back."""
        for number in numbers:
            await self.members[number].revive()

    async def close(self) -> None:
        """End every node."""
        for member in self.members:
            await member.stop()
        await self._verify.close()


def _loopback() -> ListenerSettings:
    """Return listener settings for loopback and a port the system chooses."""
    settings = load(node_schema(TABLE), Sources(sets=("node.ephemeral_ports=true", "dht.max_conns=64")))
    return listener_settings(settings, "dht")
