"""Damage to the files of a killed mailbox, and whether anybody is told.

After a kill the files are copied, and one of them is deleted, emptied, cut or has one bit flipped. The copy is then
opened by a whole mailbox, as a node would. Either everything the clients were promised is there, or the mailbox says
that something is wrong: it is not ready, or degraded, or counts what does not match its hash. If it refuses the files,
they are repaired, and the repair has to tell the truth about what is left.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from penstock.contracts.mailbox import Ack, AckBatch, GetTopics, Peek, Recv
from penstock.kernel.clock import SYSTEM
from penstock.services.mailbox.engines.repair import repair
from penstock.services.mailbox.engines.sqlite import SqliteEngine
from penstock.services.mailbox.service import MailboxService
from penstock.testing import until
from tests.services.mailbox.worlds import mailbox_options, running

FILES = {"database": "mailbox.db", "log": "mailbox.db-wal"}
WAYS = ("deleted", "emptied", "cut", "flipped")
_WAL_BYTES = 2 << 20
# Longer than any lease of the load.
QUIET_S = 4.0


@dataclass
class Promised:
    """What the clients knew for certain when the mailbox was killed."""

    there: set[str]
    gone: set[str]
    sent: set[str]

    def broken_by(self, found: set[str]) -> dict[str, int]:
        """Count what is missing, what came back, and what nobody ever sent."""
        wrong = {
            "missing": self.there - found,
            "back": found & self.gone,
            "foreign": {name for name in found - self.sent if name not in self.gone},
        }
        return {name: len(names) for name, names in wrong.items() if names}


@dataclass
class Damages:
    """What was done to the files, and what came of it."""

    rng: random.Random
    done: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    silent: list[str] = field(default_factory=list)

    async def strike(self, home: Path, promised: Promised, where: Path) -> None:
        """Damage one file of a copy of `home`, and see what a mailbox says of it."""
        file, way = self.rng.choice(sorted(FILES)), self.rng.choice(WAYS)
        copy = where / "mailbox"
        shutil.copytree(home, copy)
        (copy / "mailbox.db-shm").unlink(missing_ok=True)
        spoil(self.rng, copy / FILES[file], way)
        what = f"{file} {way}"
        self.done[what] += 1
        self._note(what, await self._open(copy, promised))
        shutil.rmtree(where)

    def _note(self, what: str, outcome: str) -> None:
        self.outcomes[outcome] += 1
        if outcome.startswith("silent"):
            self.silent.append(f"{what}: {outcome}")

    async def _open(self, copy: Path, promised: Promised) -> str:
        found, said = await look_at(copy)
        if found is not None:
            wrong = promised.broken_by(found)
            return ("told" if said else f"silent {wrong}") if wrong else "whole"
        report = repair(copy)
        found, said = await look_at(copy)
        if found is None:
            return "silent: the repaired files are refused"
        wrong = promised.broken_by(found)
        if wrong and not (report.lost or report.lost_unknown or report.unreadable or said):
            return f"silent repair {wrong}"
        return "refused, repaired with a loss that is told" if wrong else "refused, repaired whole"


def spoil(rng: random.Random, path: Path, way: str) -> None:
    """Damage a file in one way; a cut and a flip hit the part that was written to."""
    if way == "deleted":
        path.unlink(missing_ok=True)
        return
    data = path.read_bytes() if path.exists() else b""
    written = len(data.rstrip(b"\0"))
    if way == "emptied":
        data = b""
    elif way == "cut":
        data = data[: rng.randrange(written)] if written else b""
    elif written:
        place = rng.randrange(written)
        data = data[:place] + bytes((data[place] ^ 1 << rng.randrange(8),)) + data[place + 1 :]
    path.write_bytes(data)


async def look_at(directory: Path) -> tuple[set[str] | None, bool]:
    """Run a mailbox on these files; returns all it delivers (None: it refuses them), and whether it says of damage."""
    engine = SqliteEngine(directory, wal_bytes=_WAL_BYTES)
    async with running(engine, mailbox_options({}), clock=SYSTEM) as mailbox:
        if not mailbox.state.ready:
            assert mailbox.state.damage, "refused without a reason"
            return None, True
        # The node's own look at the whole file, some moments after its start.
        await until(lambda: mailbox._retention._check_at > 0 and mailbox._retention._scope is not None)
        await until(lambda: mailbox.state.now().mono / 1000 < mailbox._retention._check_at)
        await until(lambda: not len(mailbox._retention._scope))
        if not mailbox.state.ready:
            return None, True
        found = await _take_all(mailbox)
        return found, _said(mailbox)


async def _take_all(mailbox: MailboxService) -> set[str]:
    """Take and settle until nothing is left, or nothing more comes: what lies on a damaged page stays there."""
    found: set[str] = set()
    dead: set[str] = set()
    clock = mailbox.inventory.clock
    came_at = clock.monotonic()
    while clock.monotonic() < came_at + QUIET_S:
        topics = (await mailbox.api.topics(GetTopics())).topics
        if not any(each.ready + each.inflight + each.delayed for each in topics):
            break
        for each in topics:
            got = await _take(mailbox, each.topic)
            came_at = clock.monotonic() if got - found else came_at
            found |= got
    for each in (await mailbox.api.topics(GetTopics())).topics:
        dead |= await _dead(mailbox, each.topic)
    return found | dead


async def _take(mailbox: MailboxService, topic: str) -> set[str]:
    got = (await mailbox.api.recv(Recv(topic, 256, visibility_ms=60_000, wait_ms=20))).messages
    if got:
        await mailbox.api.ack_batch(AckBatch(tuple(Ack(each.msg_id, each.receipt) for each in got)))
    return {each.payload.decode() for each in got}


async def _dead(mailbox: MailboxService, topic: str) -> set[str]:
    shown = (await mailbox.api.peek(Peek(topic, "dlq", 256, payload=True))).messages
    return {(each.payload or b"").decode("utf-8", "replace") for each in shown}


def _said(mailbox: MailboxService) -> bool:
    verdict = mailbox.inventory.health.verdict()
    counted = sum(counter.value for counter in mailbox.state.integrity.values())
    return not verdict.ready or bool(verdict.degraded) or counted > 0
