"""One Python program with 64 tasks: `program.py CLIENT PHASE PORT COUNT [TOKEN]`; prints what it took as JSON.

Phases: `send`, one message a call; `tasks`, each task receives one message and acks it; `consumer`, the program
receives as many as it has free places, and a task a message acks it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from benchmarks._app.app import TASKS, App


def app_of(client: str, port: int, token: str) -> App:
    """Make the program of a client; `plain` is the SDK with joining left out."""
    if client in ("penstock", "plain"):
        from benchmarks._app.penstock_app import PenstockApp

        return PenstockApp(port, token, joined=client == "penstock")
    if client == "redis":
        from benchmarks._app.redis_app import RedisApp

        return RedisApp(port)
    if client == "nats":
        from benchmarks._app.nats_app import NatsApp

        return NatsApp(port)
    if client == "postgres":
        from benchmarks._app.postgres_app import PostgresApp

        return PostgresApp(port)
    from benchmarks._app.rabbit_app import RabbitApp

    return RabbitApp(port)


@dataclass
class Shares:
    """The messages that are still to be done, for all tasks."""

    left: int

    async def work(self, act: Callable[[], Awaitable[int | None]]) -> None:
        """Do one after the other until nothing is left."""
        while self.left > 0:
            self.left -= 1
            if await act() == 0:
                raise SystemExit("nothing was received")


async def run(app: App, phase: str, count: int) -> None:
    """Do the whole work of a phase."""
    if phase == "consumer":
        await app.consume(count)
        return
    act: Callable[[], Awaitable[int | None]] = app.send if phase == "send" else app.settle
    shares = Shares(count)
    await asyncio.gather(*(shares.work(act) for _ in range(TASKS)))


async def main() -> dict[str, float]:
    """Run one phase, and measure the program's own time."""
    client, phase, port, count, token = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
    app = app_of(client, port, token)
    await app.open()
    began_at, cpu = time.perf_counter(), time.process_time()
    await run(app, phase, count)
    took_s, cpu_s = time.perf_counter() - began_at, time.process_time() - cpu
    await app.close()
    return {"per_s": count / took_s, "client_us": cpu_s / count * 1e6}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main())))
