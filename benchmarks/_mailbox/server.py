"""One svc-mailbox in a process of its own: `server.py PORT DATA_DIR [fsync|os|memory] [key=value ...]`."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from pathlib import Path

import uvloop

from penstock.config import ListenerSettings
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from penstock.services.mailbox.books import Bounds
from penstock.services.mailbox.config import MailboxOptions
from penstock.services.mailbox.service import SERVICE, MailboxService


def listener(port: int) -> ListenerSettings:
    """Listen on loopback, with room for many connections of one peer."""
    return ListenerSettings(
        host="127.0.0.1",
        port=port,
        uds_path=None,
        uds_allow_uids=(),
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


async def main() -> None:
    """Serve until told to stop."""
    port, directory, mode = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    extra = dict(pair.split("=", 1) for pair in sys.argv[4:])
    bounds = Bounds(backlog_messages=int(extra.get("backlog", "4000000")), backlog_bytes=8 << 30)
    options = MailboxOptions(
        listener=listener(port),
        engine="memory" if mode == "memory" else "sqlite",
        data_dir=directory,
        fsync=mode == "fsync",
        bounds=bounds,
    )
    service = MailboxService(Inventory(SERVICE), options)
    supervisor = Supervisor(service.room.inventory, service.children(), service.supervision())
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
