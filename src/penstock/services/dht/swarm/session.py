"""A swarm's conversation: one ready line, then a command a line from standard input, each answered by one JSON line."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.kernel.errors import PenstockError

if TYPE_CHECKING:
    from penstock.services.dht.swarm.swarm import Swarm

COMMANDS: Final = ("kill", "blackhole", "revive", "gets", "stop")
GETS_MAX: Final = 100_000
LINE_BYTES_MAX: Final = 1 << 16


async def converse(swarm: Swarm, say: Callable[[dict[str, object]], None]) -> None:
    """Say that the swarm is ready, then obey until `stop` or the end of the input."""
    say({"event": "ready", "token": swarm.key.token, "nodes": [member.told() for member in swarm.members]})
    lines = await _standard_input()
    while True:
        # lint: allow PK009 waiting for a person to type needs no deadline; the end of the input ends it
        line = (await lines.readline()).decode("utf-8", "replace")
        words = line.split()
        if not line or words[:1] == ["stop"]:
            say({"event": "done", "command": "stop"})
            return
        if words:
            say(await obey(swarm, words))


async def obey(swarm: Swarm, words: list[str]) -> dict[str, object]:
    """Do one command; a mistake is answered, not raised."""
    command, numbers = words[0], words[1:]
    if command not in COMMANDS:
        return {"event": "error", "detail": f"there is no command {command}: {', '.join(COMMANDS)}"}
    if command == "gets":
        return await _gets(swarm, numbers)
    if not numbers or not all(word.isdigit() and int(word) < len(swarm.members) for word in numbers):
        return {"event": "error", "detail": f"{command} needs node numbers below {len(swarm.members)}"}
    act = {"kill": swarm.kill, "blackhole": swarm.blackhole, "revive": swarm.revive}[command]
    chosen = [int(word) for word in numbers]
    await act(chosen)
    return {"event": "done", "command": command, "nodes": chosen}


async def _gets(swarm: Swarm, words: list[str]) -> dict[str, object]:
    """Look up random ones of the keys so many times from random live nodes, one after the other, without HTTP."""
    count, keys = words[:1], words[1:]
    if not count or not count[0].isdigit() or not 0 < int(count[0]) <= GETS_MAX or not keys:
        return {"event": "error", "detail": f"gets needs a number from 1 to {GETS_MAX}, and keys"}
    try:
        looked = [await swarm.find(swarm.rng.choice(keys)) for _ in range(int(count[0]))]
    except PenstockError as error:
        return {"event": "error", "detail": error.detail}
    return {
        "event": "gets",
        "took": [each.took_ms for each in looked],
        "cpu": [each.cpu_ms for each in looked],
        "messages": [each.messages for each in looked],
        "found": sum(each.found for each in looked),
    }


async def _standard_input() -> asyncio.StreamReader:
    """Open standard input without blocking the loop."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


def print_line(value: dict[str, object]) -> None:
    """Print one JSON line, at once."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()
