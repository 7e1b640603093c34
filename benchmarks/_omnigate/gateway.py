"""One omnigate in its own process, with everything on but the quotas: `gateway.py JSON` prints tokens first."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import time
from types import MappingProxyType

import uvloop

from benchmarks._mailbox.server import listener
from penstock.capability import ed25519
from penstock.capability.making import mint
from penstock.capability.token import TokenRoot
from penstock.capability.trust import KeyRecord, Trust
from penstock.capability.verifier import CapabilityVerifier
from penstock.kernel.clock import SYSTEM
from penstock.kernel.inventory import Inventory
from penstock.kernel.limiter import ByteBudget
from penstock.kernel.supervisor import Supervisor
from penstock.services.omnigate.config import OmnigateOptions, QuotaOptions
from penstock.services.omnigate.proxy.config import ProxyRoute
from penstock.services.omnigate.service import SERVICE, GatewayBackends, OmnigateService

SEED = bytes(range(32))


def verifier() -> CapabilityVerifier:
    """Believe one key of our own."""
    record = KeyRecord("k1", "ed25519", ed25519.public_of(SEED), b"", 0, int(time.time()) + 10**6)
    return CapabilityVerifier(Trust(keys=MappingProxyType({"k1": record})), SYSTEM)


def token(class_name: str) -> str:
    """Mint what a tenant of this class presents."""
    now = int(time.time())
    root = TokenRoot(
        alg="ed25519", kid="k1", epoch=0, iss="bench", aud=("omnigate",), sub=class_name, tenant=f"t-{class_name}",
        class_=class_name, via=(), iat=now, nbf=now, exp=now + 86_400, tid=os.urandom(16), caveats=(), epk=b"",
    )  # fmt: skip
    return mint(root, lambda message: ed25519.sign(SEED, message))


def options(said: dict[str, int]) -> OmnigateOptions:
    """Make the gateway's options: one open route, no quotas."""
    route = ProxyRoute(prefix=("api",), upstreams=(f"http://127.0.0.1:{said['upstream']}",), timeout_s=5.0)
    return OmnigateOptions(
        listener=listener(said["port"]),
        quotas=QuotaOptions(default_rps=0, per_ip_rps=0, per_cap_rps=0),
        routes=(route,),
    )


async def main(said: dict[str, int]) -> None:
    """Serve until told to stop."""
    inventory = Inventory(SERVICE)
    service = OmnigateService(
        inventory, options(said), ByteBudget(128 << 20), behind=GatewayBackends(), verifier=verifier()
    )
    supervisor = Supervisor(inventory, service.children(), service.supervision())
    await supervisor.start()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    print(json.dumps({name: token(name) for name in ("authed", "internal")}), flush=True)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    await supervisor.drain()
    await service.close()


if __name__ == "__main__":
    sys.setswitchinterval(0.0005)
    uvloop.run(main(json.loads(sys.argv[1])))
