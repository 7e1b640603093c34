"""APIs with known faults, each with the reason and a replacement."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from penstock.lint.finding import LintHit, rule
from penstock.lint.rules.clocks import references
from penstock.lint.site import Site

BANNED = {
    "asyncio.wait_for": "on Python 3.11 it loses a cancellation that arrives together with the result; "
    "use `async with timeout(op, seconds)`",
    "asyncio.Condition": "up to Python 3.12 a notify is lost when the notified waiter is cancelled; "
    "use a channel or a watch",
    "asyncio.Barrier": "it is built on Condition and loses wake-ups the same way; join a scope",
    "asyncio.gather": "when one fails the others run on unjoined; start them in a scope",
    "asyncio.get_event_loop": "it may make a second loop; use `asyncio.get_running_loop()`",
    "anyio.create_memory_object_stream": "an item is lost when its receiver is cancelled by `task.cancel()`; "
    "use a channel",
    "janus.Queue": "an item gets stuck when a getter is cancelled, as it waits on Condition; use a channel",
}
_SUBMODULES = {
    "asyncio.tasks.wait_for": "asyncio.wait_for",
    "asyncio.tasks.gather": "asyncio.gather",
    "asyncio.locks.Condition": "asyncio.Condition",
    "asyncio.locks.Barrier": "asyncio.Barrier",
    "asyncio.events.get_event_loop": "asyncio.get_event_loop",
}
_LAST_WORDS = frozenset(name.rpartition(".")[2] for name in BANNED)


@rule("PK017", "banned-api", ast.Attribute, ast.Name)
def banned_api(node: ast.Attribute | ast.Name, site: Site) -> Iterator[LintHit]:
    """No API with a known fault is used.

    `asyncio.wait_for` (3.11 swallows a cancellation), `asyncio.Condition` and what is built on it (3.11 and
    3.12 lose a notify), `asyncio.gather` (siblings of a failure run on), anyio's memory streams (lose an
    item under a native cancel), `janus.Queue`, `asyncio.get_event_loop`. `asyncio.shield` is not banned:
    shielding a future that a worker owns is right, and shielding a coroutine is PK005.

    ```python
    # before
    answer = await asyncio.wait_for(self._ask(peer), 2.0)

    # after
    async with timeout("ask", 2.0):
        answer = await self._ask(peer)
    ```
    """
    if isinstance(node, ast.Attribute) and node.attr not in _LAST_WORDS:
        return
    name = references(node, site)
    if reason := BANNED.get(_SUBMODULES.get(name, name)):
        yield LintHit(node, f"`{ast.unparse(node)}`: {reason}")
