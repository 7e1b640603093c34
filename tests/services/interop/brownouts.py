"""A running bridge in brownout, for each of the three reasons: what it serves, sheds and says, when it ends.

    python -m tests.services.interop.brownouts

prints the table. Requests go through a real socket. What turns brownout on is noted with the times at which it would
have happened, and so is the passing of time until it ends: nobody waits five minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Final

from penstock.contracts.storage import Put
from penstock.kernel.clock import SYSTEM
from penstock.services.interop.brownout import Brownout
from penstock.wire.ids import address_of
from tests.services.interop.senders import SENDERS
from tests.services.interop.worlds import World, bridge

NOW: Final = 10_000.0
ASKED: Final = 20
OBJECT: Final = b"kept"
_OCTETS: Final = ((b"Content-Type", b"application/octet-stream"),)


def _errors(brownout: Brownout, now: float, *, enough: bool) -> float:
    """Give a hundred answers, one of them our own failure; or 101, of which one is not one percent."""
    for number in range(100 if enough else 101):
        brownout.note_answer(now, 202 if number else 500)
    return 0.0


def _slow_calls(brownout: Brownout, now: float, *, enough: bool) -> float:
    """Make the 95th percentile of a hundred calls half a second, or a little less."""
    for _ in range(100):
        brownout.note_call(now, 0.5 if enough else 0.499, failed=False)
    return 0.0


def _full_queue(brownout: Brownout, now: float, *, enough: bool) -> float:
    """Keep the queue above four fifths for a minute, or at four fifths."""
    fill = 0.81 if enough else 0.8
    for second in range(60):
        brownout.look(now - 60 + second, fill)
    return fill


Provoke = Callable[..., float]
REASONS: Final[dict[str, Provoke]] = {"error_rate": _errors, "p95": _slow_calls, "queue_pressure": _full_queue}


@dataclass(frozen=True)
class Observed:
    """One line of the table."""

    below_the_limit: str
    at_the_limit: str
    reads_served: str
    small_webhooks_accepted: str
    large_webhooks_shed: str
    puts_shed: str
    readyz: str
    readyz_read: int
    # When nothing more happens: the window of what turned it on, and then half a minute.
    ends_after_s: int
    readyz_after: int
    put_after: int


async def observe(reason: str) -> Observed:
    """Bring one bridge into brownout and out of it."""
    provoke = REASONS[reason]
    calm = Brownout()
    below = calm.look(NOW, provoke(calm, NOW, enough=False)).active
    async with bridge(rps=0) as world:
        # Not through the bridge: its answer would be one more in the count.
        await world.storage.put(Put(OBJECT))
        brownout, now = world.service.brownout, SYSTEM.monotonic()
        at = brownout.look(now, provoke(brownout, now, enough=True))
        world.service.sentinel.look()
        reads, small, large, puts = await _ask_everything(world)
        ready, read = await world.http.ask("GET", "/readyz"), await world.http.ask("GET", "/readyz/read")
        for second in brownout._seconds:
            second.at = -1  # its window has passed
        brownout.look(now + 1000, 0.0)
        world.service.sentinel.look()
        after, put = await world.http.ask("GET", "/readyz"), await world.http.ask("POST", "/put", b"new", _OCTETS)
    return Observed(
        below_the_limit="on" if below else "off",
        at_the_limit=",".join(at.reasons),
        reads_served=reads,
        small_webhooks_accepted=small,
        large_webhooks_shed=large,
        puts_shed=puts,
        readyz=f"{ready.status} {','.join(ready.json().get('degraded', ()))}",
        readyz_read=read.status,
        ends_after_s=_ends_after_s(provoke),
        readyz_after=after.status,
        put_after=put.status,
    )


def _ends_after_s(provoke: Provoke) -> int:
    """Return the second in which it ends when nothing happens after what turned it on."""
    brownout = Brownout()
    brownout.look(NOW, provoke(brownout, NOW, enough=True))
    return next(second for second in range(1, 1000) if not brownout.look(NOW + second, 0.0).active)


async def _ask_everything(world: World) -> tuple[str, str, str, str]:
    sender, http = SENDERS["github"], world.http
    reads = [await http.ask("GET", f"/o/{address_of(OBJECT)}") for _ in range(ASKED)]
    small = [await http.hook("github", sender.send(b'{"n":%d}' % number)) for number in range(ASKED)]
    large = [await http.hook("github", sender.send(b" " * (65_536 + number))) for number in range(1, ASKED + 1)]
    puts = [await http.ask("POST", "/put", b"%d" % number, _OCTETS) for number in range(ASKED)]
    return (
        _part(answer.body == OBJECT for answer in reads),
        _part(answer.status == 202 for answer in small),
        _part((answer.status, answer.json()["code"]) == (503, "backpressure") for answer in large),
        _part((answer.status, answer.json()["code"]) == (503, "backpressure") for answer in puts),
    )


def _part(found: Iterable[bool]) -> str:
    held = list(found)
    return f"{sum(held)}/{len(held)}"


def table() -> str:
    """Observe all three and lay them out."""
    rows = {reason: asdict(asyncio.run(observe(reason))) for reason in REASONS}
    names = list(next(iter(rows.values())))
    lines = ["| | " + " | ".join(rows) + " |", "|---" * (len(rows) + 1) + "|"]
    lines += [
        f"| {name.replace('_', ' ')} | " + " | ".join(str(row[name]) for row in rows.values()) + " |" for name in names
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())  # noqa: T201 - a command
