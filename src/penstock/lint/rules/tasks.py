"""Tasks, callbacks and threads: each has a parent that starts, counts, restarts and joins it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from penstock.lint.finding import LintHit, Where, rule
from penstock.lint.site import Site

_MAKERS = frozenset(
    {
        "asyncio.create_task",
        "asyncio.ensure_future",
        "asyncio.Task",
        "asyncio.TaskGroup",
        "asyncio.as_completed",
        "asyncio.run_coroutine_threadsafe",
        "asyncio.start_server",
        "asyncio.start_unix_server",
        "asyncio.tasks.create_task",
        "asyncio.tasks.ensure_future",
        "asyncio.taskgroups.TaskGroup",
        "anyio.create_task_group",
        "anyio.from_thread.start_blocking_portal",
        "trio.open_nursery",
    }
)
_CALLBACKS = frozenset({"call_soon", "call_soon_threadsafe", "call_later", "call_at"})
_THREADS = frozenset(
    {
        "threading.Thread",
        "threading.Timer",
        "_thread.start_new_thread",
        "multiprocessing.Process",
        "multiprocessing.Pool",
        "multiprocessing.pool.ThreadPool",
        "concurrent.futures.ThreadPoolExecutor",
        "concurrent.futures.ProcessPoolExecutor",
        "concurrent.futures.thread.ThreadPoolExecutor",
        "asyncio.to_thread",
        "anyio.to_thread.run_sync",
        "trio.to_thread.run_sync",
        "os.fork",
    }
)


@rule(
    "PK005",
    "stray-task",
    ast.Call,
    where=Where.SOURCE,
    instead="a long-lived task is a `ChildSpec` of the supervisor, a short one `scope.start(coro)` "
    "in a scope of its child",
)
def stray_task(node: ast.Call, site: Site) -> Iterator[LintHit]:
    """No task is made outside the supervisor.

    A task without a parent is not drained at shutdown, not restarted after a crash and not counted; if
    nobody keeps it, it may even be collected while it runs. `shield` of a coroutine and `start_server`
    make such tasks silently.

    ```python
    # before
    self._scanner = asyncio.create_task(self._scan())


    # after
    def children(self) -> list[ChildSpec]:
        return [ChildSpec("visibility_scanner", self._scan)]
    ```
    """
    name = site.name(node.func)
    is_method = isinstance(node.func, ast.Attribute) and node.func.attr == "create_task"
    if name in _MAKERS or is_method:
        yield LintHit(node, f"`{ast.unparse(node.func)}` makes a task without a parent")
    elif name == "asyncio.shield" and node.args and _makes_coroutine(node.args[0], site):
        yield LintHit(node, "`shield` of a coroutine makes a task that outlives its caller")


def _makes_coroutine(argument: ast.expr, site: Site) -> bool:
    """Tell a fresh coroutine, which shield must wrap in a task, from a future that somebody owns."""
    if not isinstance(argument, ast.Call):
        return False
    return site.name(argument.func).rpartition(".")[2] not in {"start", "create_task", "ensure_future", "submit"}


@rule(
    "PK006",
    "stray-callback",
    ast.Call,
    where=Where.SOURCE,
    instead="`async with timeout(op, seconds)` for a limit, `child.shutdown.sleep(s)` for a pause, "
    "a child for a routine",
)
def stray_callback(node: ast.Call, _site: Site) -> Iterator[LintHit]:
    """No callback is put on the loop outside the modules that are built from them.

    A `call_later` is a task in disguise: it outlives its owner, its errors reach only the loop's handler
    and no drain knows of it. The few modules made of callbacks are named in the configuration.

    ```python
    # before
    loop.call_later(30.0, self._evict)

    # after, in a child of the supervisor
    while not await child.shutdown.sleep(30.0):
        self._evict()
    ```
    """
    if isinstance(node.func, ast.Attribute) and node.func.attr in _CALLBACKS:
        yield LintHit(node, f"`{ast.unparse(node.func)}` leaves work on the loop that nobody joins")


@rule(
    "PK007",
    "stray-thread",
    ast.Call,
    where=Where.SOURCE,
    instead="`inventory.pool(name, threads=n, capacity=m)` and `await pool.run(op, seconds, call)`",
)
def stray_thread(node: ast.Call, site: Site) -> Iterator[LintHit]:
    """No thread or process is made outside the declared pools.

    The default executor is unnamed, shared by everything including DNS, and its queue is endless: one slow
    disk then stops name lookups. A declared pool has its own threads, a bounded channel and a gauge.

    ```python
    # before
    rows = await asyncio.to_thread(self._load, key)

    # after: Busy when the pool's channel is full
    rows = await self._disk.run("load", 2.0, self._load, key)
    ```
    """
    is_executor = isinstance(node.func, ast.Attribute) and node.func.attr == "run_in_executor"
    if is_executor or site.name(node.func) in _THREADS:
        yield LintHit(node, f"`{ast.unparse(node.func)}` starts what no pool bounds")
