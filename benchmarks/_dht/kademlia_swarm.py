"""A swarm of PyPI `kademlia` nodes on loopback, driven by lines: `dead 3 7`, `gets N SECONDS`, `stop`."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sys
import time


def say(**value: object) -> None:
    """Print one JSON line."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


async def main(nodes: int, seed: int, values: int) -> None:
    """Start the nodes, store values, obey."""
    from kademlia.network import Server

    logging.disable(logging.CRITICAL)
    rng = random.Random(seed)
    servers: list[Server] = []
    for _ in range(nodes):
        server = Server()
        await server.listen(0, interface="127.0.0.1")
        if servers:
            await server.bootstrap([rng.choice(servers).transport.get_extra_info("sockname")])
        servers.append(server)
    live = list(servers)
    keys = [f"key {seed} {number}" for number in range(values)]
    for key in keys:
        await rng.choice(live).set(key, "value")
    say(event="ready")
    loop = asyncio.get_running_loop()
    while True:
        command, *words = (await loop.run_in_executor(None, sys.stdin.readline)).split() or ["stop"]
        numbers = [int(word) for word in words]
        if command == "dead":
            for number in numbers:
                live.remove(servers[number])
                servers[number].stop()
            say(event="done")
        elif command == "gets":
            took, cpu, found = [], [], 0
            count, until = numbers[0], time.monotonic() + numbers[1]
            while len(took) < count and time.monotonic() < until:
                began, worked = time.perf_counter(), time.process_time()
                found += await rng.choice(live).get(rng.choice(keys)) is not None
                took.append((time.perf_counter() - began) * 1000)
                cpu.append((time.process_time() - worked) * 1000)
            say(event="gets", took=took, cpu=cpu, found=found)
        else:
            return


asyncio.run(main(*map(int, sys.argv[1:4])))
