"""Does a list hold the loop? A mailbox with 100,000 topics is listed, page after page, in every way there is.

    python -m benchmarks.topics [--topics N] [--json]

A task beside it takes every turn of the loop and notes the CPU time of its thread since the last one. The longest
of these is what anybody else would have waited at most. It is CPU time, so that a busy machine does not change it, and
the garbage collector, which runs whoever is served, is told apart. The exit code is 1 when a turn took more than 5 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

import uvloop
from rich.console import Console
from rich.table import Table

from penstock.contracts.call import Call
from penstock.contracts.mailbox import GetTopics
from penstock.kernel.clock import SYSTEM
from penstock.kernel.metrics import Metrics
from penstock.net.server.core import encode_json
from penstock.node.mailbox_page import MailboxPage
from penstock.services.mailbox.engines.sqlite import SqliteEngine
from penstock.services.mailbox.service import MailboxService
from tests.capability.kit import Issuer
from tests.services.mailbox.prefill import prefill
from tests.services.mailbox.worlds import mailbox_options, running

RESULTS = Path(__file__).parent / "results" / "topics.json"
LIMIT_MS = 5.0
console = Console(stderr=True)


class Turns:
    """Notes the CPU time of every turn of the loop."""

    def __init__(self) -> None:
        """Nothing is noted yet."""
        self.longest_ms = 0.0
        self.longest_gc_ms = 0.0
        # Of this turn.
        self._collecting_s = 0.0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Begin."""
        gc.callbacks.append(self._collected)
        self._task = asyncio.create_task(self._watch())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """End."""
        assert self._task is not None
        gc.callbacks.remove(self._collected)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest_ms = max(self.longest_ms, (now - before - self._collecting_s) * 1000)
            before, self._collecting_s = now, 0.0

    def _collected(self, phase: str, _info: object) -> None:
        if phase == "start":
            self._began = time.thread_time()
        else:
            seconds = time.thread_time() - self._began
            self._collecting_s += seconds
            self.longest_gc_ms = max(self.longest_gc_ms, seconds * 1000)


async def every_page(mailbox: MailboxService, call: Call) -> int:
    """List all topics; returns how many pages that took."""
    pages, cursor = 0, None
    while not pages or cursor is not None:
        page = await mailbox.api.topics(GetTopics(cursor=cursor), call)
        encode_json(page)
        pages, cursor = pages + 1, page.cursor
    return pages


async def measure(topics: int) -> list[dict[str, Any]]:
    """List in every way."""
    rows: list[dict[str, Any]] = []
    issuer = Issuer()
    with tempfile.TemporaryDirectory() as path:
        engine = SqliteEngine(Path(path), fsync=False)
        prefill(engine, ((f"topic/{number:06}", None) for number in range(topics)))
        async with running(engine, mailbox_options({}), SYSTEM, verifier=issuer.verifier) as mailbox:
            page = MailboxPage(mailbox, Metrics("bench"))

            async def page_of_the_operator() -> int:
                for second in range(60):
                    page.read(1e6 + second)
                    encode_json(page.facts())
                    await asyncio.sleep(0)
                return 60

            for topic in mailbox.state.ledger.topics.values():
                topic.sends = 1

            async def rates() -> int:
                for number in range(60):
                    ledger = mailbox.state.ledger
                    mailbox.state.rates.sample(ledger.topics, ledger.topic_names, 1e6 + number)
                    await asyncio.sleep(0)
                return 60

            whole, narrow = Call(issuer.token()), Call(issuer.token("topic=topic/0999"))
            ways: dict[str, Callable[[], Awaitable[int]]] = {
                "all pages, a token for everything": lambda: every_page(mailbox, whole),
                "all pages, a token for few of them": lambda: every_page(mailbox, narrow),
                "the operator's page": page_of_the_operator,
                "sampling the rates": rates,
            }
            for call in (whole, narrow):
                # A token is proven when it is first seen; that is not what is measured here.
                await mailbox.api.topics(GetTopics(limit=1), call)
            for name, act in ways.items():
                began = time.perf_counter()
                async with Turns() as turns:
                    parts = await act()
                seconds = time.perf_counter() - began
                longest = {"longest_ms": round(turns.longest_ms, 2), "gc_ms": round(turns.longest_gc_ms, 2)}
                rows.append({"what": name, "parts": parts, "s": round(seconds, 2), **longest})
    return rows


def main() -> int:
    """Measure, print, and say whether every turn was short."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    given, _ = parser.parse_known_args()
    rows = uvloop.run(measure(given.topics))
    RESULTS.write_text(json.dumps({"topics": given.topics, "rows": rows}, indent=1) + "\n")
    if given.json:
        print(json.dumps(rows))
    else:
        table = Table("what", "pages or steps", "seconds", "longest turn, ms", "longest gc, ms")
        for row in rows:
            table.add_row(row["what"], str(row["parts"]), str(row["s"]), str(row["longest_ms"]), str(row["gc_ms"]))
        Console().print(table)
    return int(any(row["longest_ms"] > LIMIT_MS for row in rows))


if __name__ == "__main__":
    sys.exit(main())
