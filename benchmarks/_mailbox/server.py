"""One svc-mailbox in a process of its own: `server.py PORT DATA_DIR [fsync|os|memory] [key=value ...]`.

Every request needs a capability, as on a node; one for everything is written to `DATA_DIR/token`. With `open=1` nothing
is checked.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from pathlib import Path
from types import MappingProxyType

import uvloop

from penstock.capability import ed25519
from penstock.capability.caveats import parse_all
from penstock.capability.making import mint
from penstock.capability.token import TokenRoot
from penstock.capability.trust import KeyRecord, Trust
from penstock.capability.verifier import CapabilityVerifier
from penstock.config import ListenerSettings
from penstock.kernel.clock import SYSTEM
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from penstock.services.mailbox.config import MailboxOptions
from penstock.services.mailbox.ledger import MailboxBounds
from penstock.services.mailbox.service import SERVICE, MailboxService


def listener(port: int, directory: Path | None = None) -> ListenerSettings:
    """Listen on loopback, and on a socket in the directory, with room for many connections of one peer."""
    return ListenerSettings(
        host="127.0.0.1",
        port=port,
        uds_path=None if directory is None else directory / "socket",
        uds_allow_uids=(os.getuid(),),
        max_conns=4096,
        max_conns_per_ip=4096,
        read_timeout_s=5.0,
        write_timeout_s=5.0,
        idle_timeout_s=60.0,
        request_deadline_s=30.0,
        body_bytes_max=1 << 20,
        decompress_ratio_cap=10,
        tls_cert_path=None,
        tls_key_path=None,
        allowed_hosts=(),
    )


def capability() -> tuple[CapabilityVerifier, str]:
    """Make an issuer of our own: what believes it, and a token of it for everything a client does."""
    public, secret = ed25519.expand(os.urandom(32))
    now = int(SYSTEM.wall())
    root = TokenRoot(
        alg="ed25519", kid="k1", epoch=0, iss="penstock", aud=("svc-mailbox",), sub="bench", tenant="bench",
        class_="authed",
        via=(), iat=now, nbf=now, exp=now + 3600, tid=os.urandom(16),
        caveats=parse_all(["op=send,recv,ack,nack,admin"]), epk=b"",
    )  # fmt: skip
    trust = Trust(keys=MappingProxyType({"k1": KeyRecord("k1", "ed25519", public, b"", 0, now + 10**6)}))
    return CapabilityVerifier(trust, SYSTEM), mint(root, lambda message: ed25519.sign_with(secret, message))


async def main() -> None:
    """Serve until told to stop."""
    port, directory, mode = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    extra = dict(pair.split("=", 1) for pair in sys.argv[4:])
    bounds = MailboxBounds(backlog_messages=int(extra.get("backlog", "4000000")), backlog_bytes=8 << 30)
    options = MailboxOptions(
        listener=listener(port, directory),
        engine="memory" if mode == "memory" else "sqlite",
        data_dir=directory,
        fsync=mode == "fsync",
        bounds=bounds,
    )
    verifier, token = capability()
    (directory / "token").write_text(token)
    service = MailboxService(Inventory(SERVICE), options, verifier=None if "open" in extra else verifier)
    supervisor = Supervisor(service.inventory, service.children(), service.supervision())
    await supervisor.start()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    await supervisor.drain()
    await service.close()


if __name__ == "__main__":
    sys.setswitchinterval(0.0005)
    uvloop.run(main())
