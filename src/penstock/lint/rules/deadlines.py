"""Deadlines: whatever waits for somebody else waits for a limited time."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from penstock.lint.config import Patterns
from penstock.lint.finding import LintHit, Where, rule
from penstock.lint.site import Site

IO_CALLS = (
    # Connecting, reading and writing.
    "*open_connection",
    "*open_unix_connection",
    "*.create_connection",
    "*.create_unix_connection",
    "*.start_tls",
    "*.drain",
    "*.read",
    "*.readline",
    "*.readexactly",
    "*.readuntil",
    "*.sendfile",
    "*.wait_closed",
    "*.getaddrinfo",
    "*.getnameinfo",
    "*.sock_accept",
    "*.sock_connect",
    "*.sock_recv",
    "*.sock_recv_into",
    "*.sock_recvfrom",
    "*.sock_sendall",
    "*.sock_sendfile",
    "*.sock_sendto",
    # Processes.
    "*.create_subprocess_exec",
    "*.create_subprocess_shell",
    "*.communicate",
    # Calls to others.
    "*.request",
    "*.fetch",
    "*.connect",
    "*.execute",
    "*.commit",
    "*client.get",
    "*client.put",
    "*client.post",
    "*client.call",
    "*session.get",
    "*session.post",
    "*stub.call",
    # Full channels and pools.
    "*.send",
    "*queue.put",
    "asyncio.Queue().put",
    "*pool.run",
    "*pool.submit",
    "*.run_in_executor",
    "asyncio.to_thread",
)
_IO = Patterns(IO_CALLS)
_SLEEPS = frozenset({"asyncio.sleep", "anyio.sleep", "trio.sleep"})


@rule(
    "PK009",
    "no-deadline",
    ast.Await,
    ast.AsyncWith,
    where=Where.SOURCE,
    instead='`async with timeout("op", seconds)` around it, or a `deadline=` / `timeout_s=` argument',
)
def no_deadline(node: ast.Await | ast.AsyncWith, site: Site) -> Iterator[LintHit]:
    """No I/O, call or send to a full channel waits without a deadline.

    A peer that stops answering otherwise holds the task, its memory and its slot for ever. Waiting for
    *work* needs no deadline (`recv`, `changed`, an event): closing the channel ends it. A private function
    passes when every use of it in its file is awaited inside a deadline.

    ```python
    # before
    await self._writer.drain()

    # after
    async with timeout("write", self._config.write_timeout_s):
        await self._writer.drain()
    ```
    """
    if site.frame.deadlines:
        return
    exprs = [node.value] if isinstance(node, ast.Await) else [item.context_expr for item in node.items]
    for expr in exprs:
        if isinstance(expr, ast.Call) and _is_io(expr, site) and not site.has_limit(expr):
            yield LintHit(expr, f"`{ast.unparse(expr.func)}` may wait for ever", unless_bounded=True)


def _is_io(call: ast.Call, site: Site) -> bool:
    if site.is_own_method(call.func):
        return False
    name = site.name(call.func)
    return _IO.match(name) or site.settings.io_calls.match(name)


@rule(
    "PK010",
    "deaf-sleep",
    ast.Call,
    where=Where.SOURCE,
    instead="`await child.shutdown.sleep(s)`, which returns early when draining begins",
)
def deaf_sleep(node: ast.Call, site: Site) -> Iterator[LintHit]:
    """No loop sleeps deaf to shutdown.

    A loop that pauses by `asyncio.sleep` holds up the drain for the rest of its pause, and `time.sleep`
    cannot be ended at all. A sleep inside a deadline, or between a counted number of tries, passes.

    ```python
    # before
    while True:
        await asyncio.sleep(60.0)
        self._refresh()

    # after
    while not await child.shutdown.sleep(60.0):
        self._refresh()
    ```
    """
    name = site.name(node.func)
    if name == "time.sleep" and not site.on_loop:
        yield LintHit(node, "`time.sleep` cannot be ended early")
    elif name in _SLEEPS and site.frame.loops and not site.frame.deadlines and not is_zero_sleep(node):
        yield LintHit(node, f"`{ast.unparse(node)}` pauses a loop that shutdown waits for")


def is_zero_sleep(node: ast.Call) -> bool:
    """`sleep(0)` is one turn of the loop, not a pause."""
    return bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0


@rule(
    "PK018",
    "sleep-in-test",
    ast.Call,
    where=Where.TESTS,
    instead="wait for the event itself, or let virtual time pass with the test kit's clock",
)
def sleep_in_test(node: ast.Call, site: Site) -> Iterator[LintHit]:
    """No test sleeps.

    A sleep is a guess about speed: too short on a busy machine, wasted on an idle one. `asyncio.sleep(0)`,
    one turn of the loop, is allowed. Where tests run on virtual time `asyncio.sleep` is exact and costs
    nothing: a project that names the marks of its other tests (`real-time-marks`) is told of those only.

    ```python
    # before
    channel.try_send(job)
    await asyncio.sleep(0.1)
    assert worker.seen == [job]

    # after
    channel.try_send(job)
    await job.reply
    assert worker.seen == [job]
    ```
    """
    name, marks = site.name(node.func), site.settings.real_time_marks
    on_virtual_time = bool(marks) and site.frame.marks.isdisjoint(marks)
    is_pause = name in _SLEEPS and not is_zero_sleep(node) and not on_virtual_time
    if is_pause or name == "time.sleep":
        yield LintHit(node, f"`{ast.unparse(node)}` guesses how long something takes")
