"""Locks: never held across an await, and none that is made to be."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from penstock.lint.finding import LintHit, rule
from penstock.lint.names import statements
from penstock.lint.site import Site, suspensions

_ASYNC_MODULES = ("asyncio", "asyncio.locks", "anyio", "trio")
_ASYNC_KINDS = ("Lock", "Semaphore", "BoundedSemaphore", "CapacityLimiter", "StrictFIFOLock")
_ASYNC_LOCKS = frozenset(f"{module}.{kind}" for module in _ASYNC_MODULES for kind in _ASYNC_KINDS)
_THREAD_LOCKS = frozenset(
    f"{module}.{kind}"
    for module in ("threading", "multiprocessing")
    for kind in ("Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore")
)
_LOCK_NAME = re.compile(r"(?:^|_)(?:r|rw|spin)?(?:lock|mutex|sem|semaphore)s?(?:_for)?$", re.IGNORECASE)
_GUARD_METHODS = frozenset({"read", "write", "reader", "writer", "read_lock", "write_lock", "gen_rlock", "gen_wlock"})


def is_lock(expr: ast.expr, site: Site) -> bool:
    """Tell whether an expression is a lock: by where it comes from, else by what it is called."""
    origin = site.name(expr)
    if origin.removesuffix("()") in _THREAD_LOCKS | _ASYNC_LOCKS or origin.endswith(".lock()"):
        return True
    if isinstance(expr, ast.Call):
        return _is_lock_call(expr, site)
    return bool(_LOCK_NAME.search(_last_name(expr)))


def _is_lock_call(expr: ast.Call, site: Site) -> bool:
    """`state.lock_for(key)` gives a lock; `state.lock.read()` a guard on one."""
    if isinstance(expr.func, ast.Attribute) and expr.func.attr in _GUARD_METHODS:
        return is_lock(expr.func.value, site)
    return bool(_LOCK_NAME.search(_last_name(expr.func)))


def _last_name(expr: ast.expr) -> str:
    if isinstance(expr, ast.Subscript):
        return _last_name(expr.value)
    if isinstance(expr, ast.Attribute):
        return expr.attr
    return expr.id if isinstance(expr, ast.Name) else ""


def _spans(guard: ast.AST, lock: ast.expr, awaits: list[ast.AST]) -> Iterator[LintHit]:
    lines = sorted({getattr(node, "lineno", 0) for node in awaits})
    if lines:
        where = ", ".join(str(line) for line in lines)
        yield LintHit(guard, f"`{ast.unparse(lock)}` is still held at the await on line {where}")


@rule(
    "PK001",
    "lock-across-await",
    ast.With,
    ast.AsyncFunctionDef,
    instead="change all the state in one synchronous step, leave the lock, then await",
)
def lock_across_await(node: ast.With | ast.AsyncFunctionDef, site: Site) -> Iterator[LintHit]:
    """No lock is held across an await.

    Whoever waits for the lock waits for the I/O too; a thread lock stops the whole loop, and a cancelled
    holder leaves half-changed state behind. Seen for `with lock:` and for `acquire()` ... `release()`.

    ```python
    # before
    with self._lock:
        self._entries.pop(key)
        await self._store.delete(key)

    # after: decide under the lock, act outside it
    with self._lock:
        entry = self._entries.pop(key)
    await self._store.delete(entry.key)
    ```
    """
    if isinstance(node, ast.AsyncFunctionDef):
        yield from _acquired_across_await(node, site)
    elif site.frame.is_async:
        awaits = list(suspensions(node.body))
        for item in node.items if awaits else ():
            if is_lock(item.context_expr, site):
                yield from _spans(node, item.context_expr, awaits)


def _acquired_across_await(node: ast.AsyncFunctionDef, site: Site) -> Iterator[LintHit]:
    """Follow `acquire` and `release` in source order, which is how such pairs are written."""
    held: dict[str, tuple[ast.Call, list[ast.AST]]] = {}
    done: list[tuple[ast.Call, list[ast.AST]]] = []
    for event in _lock_events(node):
        if not isinstance(event, ast.Call):
            for _, awaits in held.values():
                awaits.append(event)
        elif isinstance(event.func, ast.Attribute):
            key = ast.unparse(event.func.value)
            if event.func.attr == "release" and key in held:
                done.append(held.pop(key))
            elif event.func.attr == "acquire" and is_lock(event.func.value, site):
                held.setdefault(key, (event, []))
    for call, awaits in [*done, *held.values()]:
        if isinstance(call.func, ast.Attribute):
            yield from _spans(call, call.func.value, awaits)


def _lock_events(node: ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """Yield the suspensions and the plain `acquire`/`release` calls of a coroutine in source order."""
    calls = [call for call in _calls(node) if isinstance(call.func, ast.Attribute)]
    plain = [call for call in calls if call.func.attr in {"acquire", "release"}]  # type: ignore[attr-defined]
    if not any(call.func.attr == "acquire" for call in plain):  # type: ignore[attr-defined]
        return
    found = [*plain, *suspensions(node.body)]
    yield from sorted(found, key=lambda n: (n.lineno, n.col_offset))  # type: ignore[attr-defined]


def _calls(node: ast.AsyncFunctionDef) -> Iterator[ast.Call]:
    """Yield the calls of a coroutine that are statements, values or conditions, but not awaited."""
    for statement in statements(node.body):
        expr = getattr(statement, "value", None) or getattr(statement, "test", None)
        if isinstance(expr, ast.UnaryOp):
            expr = expr.operand
        if isinstance(expr, ast.Call):
            yield expr


@rule(
    "PK002",
    "async-lock",
    ast.AsyncWith,
    ast.Await,
    ast.Call,
    instead="give the state one owner that takes jobs from a channel, or use a limiter that refuses "
    "instead of queueing",
)
def async_lock(node: ast.AsyncWith | ast.Await | ast.Call, site: Site) -> Iterator[LintHit]:
    """No lock is made to be awaited.

    `async with lock` exists only to hold a lock over an await, and its waiters form a queue without a bound,
    a deadline or a counter. Semaphores are the same queue under another name.

    ```python
    # before
    async with self._lock:
        self._balance -= amount
        await self._store.save(self._balance)

    # after: the worker that owns the balance takes one job at a time
    self._jobs.try_send(Job(Withdraw(amount), deadline, corr_id))
    ```
    """
    if isinstance(node, ast.AsyncWith):
        for item in node.items:
            if is_lock(item.context_expr, site):
                yield LintHit(node, f"`async with {ast.unparse(item.context_expr)}` waits inside a lock")
    elif isinstance(node, ast.Call):
        if site.name(node.func) in _ASYNC_LOCKS:
            yield LintHit(node, f"`{ast.unparse(node.func)}` is a lock for awaiting in")
    elif _is_acquire(node.value, site):
        yield LintHit(node, f"`{ast.unparse(node)}` queues without a bound")


def _is_acquire(node: ast.expr, site: Site) -> bool:
    is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return is_method and node.func.attr == "acquire" and is_lock(node.func.value, site)  # type: ignore[attr-defined]
