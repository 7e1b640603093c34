"""Cancellation: it passes through, and what runs meanwhile is short."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from penstock.lint.finding import LintHit, Where, rule
from penstock.lint.site import Site, suspensions

_CANCELLED = frozenset({"asyncio.CancelledError", "asyncio.exceptions.CancelledError"})
_BROAD = frozenset({"Exception", "BaseException"})
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@rule(
    "PK013",
    "swallowed-cancel",
    ast.Try,
    ast.TryStar,
    ast.Call,
    instead="end the handler with a bare `raise`; to stop a child and wait for it, close its scope",
)
def swallowed_cancel(node: ast.Try | ast.Call, site: Site) -> Iterator[LintHit]:
    """No cancellation is swallowed.

    A task that catches its cancellation and goes on cannot be stopped: the drain waits for it, the timeout
    around it never ends. Seen for handlers that do not re-raise on every path, for `suppress`, for leaving
    a `finally` by return, break or continue, and for `uncancel`. A handler that tells the cancellation of a
    thing it awaited from its own by `if task.cancelling(): raise` passes.

    ```python
    # before
    except asyncio.CancelledError:
        logger.info("stopped")

    # after
    except asyncio.CancelledError:
        logger.info("stopped")
        raise
    ```
    """
    if isinstance(node, ast.Call):
        yield from _suppressed(node, site)
        return
    for handler in node.handlers:
        if _takes_cancel(node, handler, site):
            if not reraises(handler.body, handler.name) and not _raises_its_own(handler):
                yield LintHit(handler, f"`{_clause(handler)}` does not raise it again on every path")
            break  # Later clauses of this try no longer see a cancellation.
    if site.frame.is_async and any(suspensions([*node.body, *node.orelse])):
        for leave in _leaves(node.finalbody, in_loop=False):
            yield LintHit(leave, f"`{ast.unparse(leave)}` in a `finally` drops the exception that is passing")


def _takes_cancel(node: ast.Try, handler: ast.ExceptHandler, site: Site) -> bool:
    """Tell whether the task's own cancellation may arrive in a handler: it is thrown only where a block suspends.

    `except CancelledError` around `future.result()` is about that future, which somebody else cancelled.
    """
    is_named = any(name in _CANCELLED for name in site.caught(handler))
    is_caught = is_named or (site.frame.is_async and site.catches_cancel(handler))
    return is_caught and any(suspensions(node.body))


def reraises(body: list[ast.stmt], name: str | None) -> bool:
    """Tell whether every path through a handler ends by raising what was caught."""
    for statement in body:
        if isinstance(statement, ast.Raise):
            return statement.exc is None or (isinstance(statement.exc, ast.Name) and statement.exc.id == name)
        if any(True for _ in _leaves([statement], in_loop=False)):
            return False
        if _block_reraises(statement, name):
            return True
    return False


def _block_reraises(statement: ast.stmt, name: str | None) -> bool:
    if isinstance(statement, ast.If):
        return reraises(statement.body, name) and reraises(statement.orelse, name)
    if isinstance(statement, ast.With | ast.AsyncWith):
        return reraises(statement.body, name)
    if isinstance(statement, ast.Try):
        return reraises(statement.finalbody, name) or (not statement.handlers and reraises(statement.body, name))
    return False


def _raises_its_own(handler: ast.ExceptHandler) -> bool:
    """Tell a handler that asks whose cancellation it is (`if task.cancelling(): raise`) before anything else leaves."""
    for statement in handler.body:
        if isinstance(statement, ast.If) and _asks_for_cancel(statement.test):
            return reraises(statement.body, handler.name)
        if any(True for _ in _leaves([statement], in_loop=False)):
            return False
    return False


def _asks_for_cancel(test: ast.expr) -> bool:
    calls = [node for node in ast.walk(test) if isinstance(node, ast.Call)]
    return any("cancel" in ast.unparse(call.func) for call in calls)


def _leaves(body: list[ast.stmt], *, in_loop: bool) -> Iterator[ast.stmt]:
    """Yield the statements that leave a block early: return, and break or continue of a loop around it."""
    for node in body:
        if isinstance(node, ast.Return) or (isinstance(node, ast.Break | ast.Continue) and not in_loop):
            yield node
        elif not isinstance(node, _NESTED):
            for block in ("body", "orelse", "finalbody"):
                inside = in_loop or (isinstance(node, _LOOPS) and block == "body")
                yield from _leaves(getattr(node, block, []), in_loop=inside)
            for branch in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
                yield from _leaves(branch.body, in_loop=in_loop)


def _suppressed(node: ast.Call, site: Site) -> Iterator[LintHit]:
    if site.name(node.func) == "contextlib.suppress":
        names = {site.name(argument) for argument in node.args}
        if names & _CANCELLED or ("BaseException" in names and site.frame.is_async):
            yield LintHit(node, f"`{ast.unparse(node)}` drops it")
    elif isinstance(node.func, ast.Attribute) and node.func.attr == "uncancel":
        yield LintHit(node, f"`{ast.unparse(node)}` takes it back")


def _clause(handler: ast.ExceptHandler) -> str:
    return f"except {ast.unparse(handler.type)}" if handler.type is not None else "except:"


@rule(
    "PK014",
    "unbounded-cleanup",
    ast.Await,
    ast.AsyncFor,
    ast.AsyncWith,
    where=Where.SOURCE,
    instead='`async with timeout("close", seconds)` inside the `finally`, or a call that is declared to bound itself',
)
def unbounded_cleanup(node: ast.Await | ast.AsyncFor | ast.AsyncWith, site: Site) -> Iterator[LintHit]:
    """No cleanup waits without a bound.

    A `finally` also runs while a cancellation or a timeout passes, and the deadline around it has already
    been spent: an await that hangs there hangs the shutdown.

    ```python
    # before
    finally:
        await writer.wait_closed()

    # after
    finally:
        async with timeout("close", 0.25):
            await writer.wait_closed()
    ```
    """
    if not site.frame.cleanups or site.frame.deadlines:
        return
    if isinstance(node, ast.AsyncWith):
        exprs = [item.context_expr for item in node.items]
        if any(site.opens_deadline(expr) for expr in exprs):
            return
    else:
        exprs = [node.value if isinstance(node, ast.Await) else node.iter]
    if not any(_is_bounded(expr, site) for expr in exprs):
        yield LintHit(node, f"`{ast.unparse(exprs[0])}` runs after the deadline around it is spent")


def _is_bounded(expr: ast.expr, site: Site) -> bool:
    return isinstance(expr, ast.Call) and site.has_limit(expr)


@rule(
    "PK015",
    "broad-except",
    ast.Try,
    ast.TryStar,
    ast.Call,
    where=Where.SOURCE,
    instead="catch the conditions you can answer; a bug ends at the worker's or the supervisor's boundary",
)
def broad_except(node: ast.Try | ast.Call, site: Site) -> Iterator[LintHit]:
    """No code catches every exception outside the declared boundaries.

    `except Exception` turns a bug into a wrong answer. There are few places that must outlive any bug (the
    supervisor, the worker's job boundary, a connection) and the configuration names them. A handler that
    always raises what it caught passes.

    ```python
    # before
    except Exception:
        return None

    # after
    except (ConnectionError, Timeout) as exc:
        raise DownstreamUnavailable("registry") from exc
    ```
    """
    if isinstance(node, ast.Call):
        if site.name(node.func) == "contextlib.suppress" and _BROAD & {site.name(a) for a in node.args}:
            yield LintHit(node, f"`{ast.unparse(node)}` hides bugs")
        return
    for handler in node.handlers:
        is_broad = bool(_BROAD.intersection(site.caught(handler)))
        # A clause that swallows a cancellation as well is told of once, by PK013.
        is_told = _takes_cancel(node, handler, site)
        if is_broad and not is_told and not reraises(handler.body, handler.name):
            yield LintHit(handler, f"`{_clause(handler)}` catches bugs too")
