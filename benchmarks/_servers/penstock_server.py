"""The listener with one JSON route, one refusing route, and nothing else."""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import uvloop

from penstock.kernel.errors import Busy
from penstock.kernel.inventory import Inventory
from penstock.kernel.limiter import ByteBudget
from penstock.net.server.admission import Refusal
from penstock.net.server.listener import Listener, ListenerOptions
from penstock.net.server.route import Route

if TYPE_CHECKING:
    from penstock.net.message import Request

BUDGET_BYTES = 128 << 20


class Ask(msgspec.Struct, forbid_unknown_fields=True):
    """What the route takes."""

    text: str
    n: int


class Said(msgspec.Struct):
    """What it answers."""

    text: str
    n: int
    length: int


def echo(_request: Request, ask: Ask) -> Said:
    """Answer what was asked."""
    return Said(ask.text, ask.n + 1, len(ask.text))


def options(port: int, tls_dir: str) -> ListenerOptions:
    """Listen on loopback; every benchmark connection comes from one address."""
    cert, key = (Path(tls_dir, "cert.pem"), Path(tls_dir, "key.pem")) if tls_dir else (None, None)
    return ListenerOptions(port=port, max_conns=16384, max_conns_per_ip=16384, tls_cert_path=cert, tls_key_path=key)


async def serve(port: int, tls_dir: str) -> None:
    """Run until the process is ended."""
    refusal = Refusal(Busy("The class is full.", queue="work"))
    routes = [
        Route(method="POST", path="/echo", handler=echo, body=Ask, answer=Said),
        Route(method="POST", path="/refused", handler=echo, body=Ask, answer=Said),
    ]

    def admit(request: Request) -> Refusal | None:
        return refusal if request.route is routes[1] else None

    listener = Listener(
        Inventory("bench"), options(port, tls_dir), routes, admission=admit, budget=ByteBudget(BUDGET_BYTES)
    )
    await listener.start()
    # As every process of a node does once it has started.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    print(listener.port, flush=True)
    await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""))
