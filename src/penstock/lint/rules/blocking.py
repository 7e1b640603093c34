"""Calls that stop the loop, and finalizers that do worse."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from penstock.lint.finding import LintHit, Where, rule
from penstock.lint.rules.locks import is_lock
from penstock.lint.site import Site

_WORDS = {
    "": "open input breakpoint",
    "time": "sleep",
    "os": "fsync fdatasync sync system popen wait waitpid read write open listdir scandir walk stat lstat remove "
    "unlink rename replace mkdir makedirs rmdir removedirs link symlink truncate chmod chown utime sendfile statvfs",
    "os.path": "exists isfile isdir islink getsize getmtime realpath samefile",
    "socket": "create_connection getaddrinfo gethostbyname gethostbyname_ex gethostbyaddr getnameinfo getfqdn",
    "socket.socket": "connect accept recv recv_into recvfrom send sendall sendto sendfile",
    "select": "select poll",
    "signal": "pause sigwait sigtimedwait",
    "asyncio": "run",
    "threading.Event": "wait",
    "threading.Thread": "join",
    "threading.Barrier": "wait",
    "queue.Queue": "get put join",
    "queue.SimpleQueue": "get",
    "concurrent.futures": "wait",
    "fcntl": "flock lockf",
    "tempfile": "NamedTemporaryFile TemporaryFile TemporaryDirectory mkstemp mkdtemp SpooledTemporaryFile",
    "zipfile": "ZipFile",
    "tarfile": "open",
    "gzip": "open GzipFile",
    "bz2": "open",
    "lzma": "open",
    "apsw": "Connection",
    "apsw.Connection": "execute executemany",
    "psycopg": "connect",
    "psycopg2": "connect",
    "pymysql": "connect",
    "httpx": "get post put patch delete head options request stream Client",
    "pathlib.Path": "read_text read_bytes write_text write_bytes open exists stat lstat is_file is_dir mkdir rmdir "
    "unlink rename replace touch iterdir glob rglob resolve chmod symlink_to hardlink_to samefile",
}
BLOCKING = frozenset(f"{owner}.{word}".lstrip(".") for owner, words in _WORDS.items() for word in words.split())
BLOCKING_MODULES = (
    "requests.",
    "subprocess.",
    "shutil.",
    "sqlite3.",
    "urllib.request.",
    "http.client.",
    "smtplib.",
    "ftplib.",
    "urllib3.",
)
_METHODS = frozenset({"read_text", "read_bytes", "write_text", "write_bytes", "run_until_complete", "run_forever"})
_NOT_CALLS = ("Error", "Exception", "Expired", "Warning", "Request", "Row")
_HEAVY_METHODS = frozenset({"close", "join", "wait", "result", "acquire", "shutdown", "flush", "commit"})
_LOOP_METHODS = frozenset({"create_task", "call_soon", "call_soon_threadsafe", "call_later", "call_at"})


def is_blocking(call: ast.Call, site: Site) -> bool:
    """Tell whether a call may wait for a disk, a peer, a process or the clock without giving the loop back."""
    spelled = site.name(call.func)
    name = spelled.replace("()", "")
    if name in BLOCKING or site.settings.blocking_calls.match(spelled):
        return True
    if name.startswith(BLOCKING_MODULES) and not name.endswith(_NOT_CALLS):
        return True
    is_telling = isinstance(call.func, ast.Attribute) and call.func.attr in _METHODS
    return is_telling and not site.is_own_method(call.func)


@rule(
    "PK008",
    "blocking-call",
    ast.Call,
    where=Where.SOURCE,
    instead="`await pool.run(op, seconds, call)` on a declared pool, or the asynchronous form of the call",
)
def blocking_call(node: ast.Call, site: Site) -> Iterator[LintHit]:
    """No blocking call runs on the loop.

    While one coroutine waits for a disk or a name server nothing else runs: deadlines fire late, health
    checks fail, and every client pays. Seen in coroutines and in the callbacks of asyncio protocols.

    ```python
    # before
    async def save(self, data: bytes) -> None:
        self._path.write_bytes(data)


    # after
    async def save(self, data: bytes) -> None:
        await self._disk.run("save", 2.0, self._path.write_bytes, data)
    ```
    """
    if node is not site.awaited and site.on_loop and is_blocking(node, site):
        yield LintHit(node, f"`{ast.unparse(node.func)}` stops every task until it returns")


@rule(
    "PK016",
    "busy-finalizer",
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    instead="an idempotent `async close()`, also by `async with`; `__del__` at most logs `dropped_without_close`",
)
def busy_finalizer(node: ast.FunctionDef | ast.AsyncFunctionDef, site: Site) -> Iterator[LintHit]:
    """No `__del__` blocks, awaits, locks or touches the loop.

    A finalizer runs at any allocation, in any thread, perhaps while the lock it wants is held by the very
    code it interrupts, perhaps after the loop is gone.

    ```python
    # before
    def __del__(self) -> None:
        self._socket.close()


    # after
    def __del__(self) -> None:
        if not self._closed:
            logger.debug("dropped_without_close")
    ```
    """
    if node.name != "__del__" or site.class_ is None:
        return
    if isinstance(node, ast.AsyncFunctionDef):
        yield LintHit(node, "`async def __del__` is never awaited")
    for item in ast.walk(node):
        if isinstance(item, ast.Call) and _is_heavy(item, site):
            yield LintHit(item, f"`{ast.unparse(item.func)}` in a finalizer")
        elif isinstance(item, ast.With):
            yield from (LintHit(item, "a lock in a finalizer") for i in item.items if is_lock(i.context_expr, site))


def _is_heavy(call: ast.Call, site: Site) -> bool:
    if is_blocking(call, site) or site.name(call.func).startswith("asyncio."):
        return True
    return isinstance(call.func, ast.Attribute) and call.func.attr in _HEAVY_METHODS | _LOOP_METHODS
