"""The registry of queues reads them as soon as the bridge has its authority, and says so when that takes long."""

from __future__ import annotations

import asyncio

from penstock.kernel.child import ChildSpec
from penstock.kernel.clock import LoopClock
from penstock.kernel.errors import NotReady
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from penstock.services.interop.authority import BridgeAuthority
from penstock.services.interop.brownout import Brownout
from penstock.services.interop.calls import BridgeCalls
from penstock.services.interop.sqs.face.backing import SqsBacking
from penstock.services.interop.sqs.face.key_ring import KeyRing
from penstock.services.interop.sqs.face.registry import QueueRegistry
from penstock.testing.contracts.memory_mailbox import MemoryMailbox


class LateBacking(SqsBacking):
    """A bridge that gets its own token a tenth of a second after the start."""

    async def own_call(self, op: str, topic: str):
        if asyncio.get_running_loop().time() < self.from_s:
            raise NotReady("The bridge has no authority of its own yet.", phase="passport")
        return await super().own_call(op, topic)


async def test_queues_are_read_soon_after_the_bridge_has_its_token() -> None:
    inventory = Inventory("svc-interop", LoopClock())
    calls = BridgeCalls(inventory, "svc-passport", 1.0, Brownout())
    backing = LateBacking(MemoryMailbox(LoopClock()), BridgeAuthority(inventory, None, None, calls))
    backing.from_s = asyncio.get_running_loop().time() + 0.1
    registry = QueueRegistry(inventory, backing, KeyRing(inventory, None, ()))
    spec = ChildSpec("sqs_registry", registry.run, announces=True, consumes=(registry.changes,))
    supervisor = Supervisor(inventory, [spec])
    await supervisor.start()
    before = registry.loaded
    # On virtual time: no longer than a client waits that tries again by itself.
    await asyncio.sleep(0.3)
    after = registry.loaded
    await supervisor.drain()

    assert (before, after) == (False, True)
