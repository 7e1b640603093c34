"""A flood of connections: each sends its bytes, reads until it is closed or its time is over, and is gone.

python -m benchmarks._flood.dialling < plan.json
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

OPEN_MAX = 64
LIFE_S = 1.0


class Dialler(asyncio.Protocol):
    """One connection; it counts what comes back."""

    def __init__(self, what: bytes, counts: dict[str, int]) -> None:
        """Take what to send, and where to count."""
        self._what = what
        self._counts = counts
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send everything at once."""
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.transport.write(self._what)

    def data_received(self, data: bytes) -> None:
        """Note that somebody answers."""
        self._counts["bytes"] += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go."""
        if not self.gone.done():
            self.gone.set_result(None)


async def dial(plan: dict[str, Any], number: int, counts: dict[str, int]) -> None:
    """Open one connection and see it to its end."""
    loop = asyncio.get_running_loop()
    what = bytes.fromhex(plan["bytes"]).replace(b"NUMBER", b"%06d" % (number % 1_000_000))
    try:
        _, line = await loop.create_connection(lambda: Dialler(what, counts), "127.0.0.1", plan["port"])
    except OSError:
        counts["failed"] += 1
        return
    try:
        await asyncio.wait_for(line.gone, LIFE_S)
        counts["refused"] += 1
    except TimeoutError:
        counts["served"] += 1
        line.transport.abort()


async def run(plan: dict[str, Any]) -> dict[str, Any]:
    """Dial at the plan's rate for as long as it says; beyond a bound of open connections none is added."""
    loop = asyncio.get_running_loop()
    counts = dict.fromkeys(("offered", "served", "refused", "failed", "bytes"), 0)
    tasks: set[asyncio.Task[None]] = set()
    began = loop.time()
    while (now := loop.time() - began) < plan["seconds"]:
        while counts["offered"] < now * plan["rps"]:
            counts["offered"] += 1
            if len(tasks) >= OPEN_MAX:
                counts["failed"] += 1
                continue
            task = loop.create_task(dial(plan, counts["offered"], counts))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.sleep(0.002)
    await asyncio.gather(*tasks)
    return {"flood": counts}


if __name__ == "__main__":
    import uvloop

    print(json.dumps(uvloop.run(run(json.load(sys.stdin)))))
