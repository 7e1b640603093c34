"""A swarm of PyPI `kademlia` nodes on loopback, driven by lines on standard input: `dead N`, `gets N`, `stop`."""

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
    rng, base = random.Random(seed), 21000 + seed * 1000
    live = []
    for number in range(nodes):
        server = Server()
        await server.listen(base + number, interface="127.0.0.1")
        if live:
            await server.bootstrap([("127.0.0.1", base + rng.randrange(number))])
        live.append(server)
    keys = [f"key {seed} {number}" for number in range(values)]
    for key in keys:
        await rng.choice(live).set(key, "value")
    say(event="ready")
    loop = asyncio.get_running_loop()
    while True:
        command, _, count = (await loop.run_in_executor(None, sys.stdin.readline)).strip().partition(" ")
        if command == "dead":
            for _ in range(int(count)):
                live.pop(rng.randrange(len(live))).stop()
            say(event="done")
        elif command == "gets":
            took, cpu, found = [], [], 0
            for _ in range(int(count)):
                began, worked = time.perf_counter(), time.process_time()
                found += await rng.choice(live).get(rng.choice(keys)) is not None
                took.append((time.perf_counter() - began) * 1000)
                cpu.append((time.process_time() - worked) * 1000)
            say(event="gets", took=took, cpu=cpu, found=found)
        else:
            return


asyncio.run(main(*map(int, sys.argv[1:4])))
