"""Queues: bounded, declared, and with a policy for the day they are full."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from penstock.lint.finding import LintHit, Where, rule
from penstock.lint.site import Site

_SIZED = frozenset(
    f"{module}.{kind}"
    for module in ("asyncio", "asyncio.queues", "queue", "multiprocessing", "janus")
    for kind in ("Queue", "LifoQueue", "PriorityQueue", "JoinableQueue")
)
_ENDLESS = frozenset({"queue.SimpleQueue", "multiprocessing.SimpleQueue", "_queue.SimpleQueue"})
_STREAMS = frozenset({"anyio.create_memory_object_stream", "trio.open_memory_channel"})
_KERNEL_KINDS = frozenset({"Channel", "Broadcast", "Watch"})
_GROWING = frozenset({"append", "appendleft", "extend", "insert"})


@rule(
    "PK003",
    "unbounded-queue",
    ast.Call,
    ast.ClassDef,
    instead="`inventory.channel(name, type, capacity=n, full=Full.REFUSE)`, or a `maxlen` / a check of `len()` "
    "before each append",
)
def unbounded_queue(node: ast.Call | ast.ClassDef, site: Site) -> Iterator[LintHit]:
    """No queue grows without a bound.

    A queue without a capacity turns overload into memory and latency; it fails late and far from the cause.
    Seen for queues without `maxsize`, and for a deque or list on self that a class appends to and takes
    from without ever comparing its length; the latter not in tests, whose fakes live for a moment.

    ```python
    # before
    self._jobs = asyncio.Queue()

    # after: refuses with Busy when 512 wait, and counts it
    self._jobs = inventory.channel("work", Job, capacity=512, full=Full.REFUSE)
    ```
    """
    if isinstance(node, ast.ClassDef):
        if not site.is_test:
            yield from _endless_attributes(node, site)
        return
    name = site.name(node.func)
    is_endless_stream = name in _STREAMS and node.args and _is_infinite(node.args[0], site)
    if name in _ENDLESS or is_endless_stream or (name in _SIZED and not _has_size(node)):
        yield LintHit(node, f"`{ast.unparse(node)}` has no capacity")


def _has_size(node: ast.Call) -> bool:
    """Tell whether a queue is given a size; zero and below mean endless."""
    sizes = [*node.args[:1], *(k.value for k in node.keywords if k.arg in {"maxsize", None})]
    return any(not _is_zero(size) for size in sizes)


def _is_zero(size: ast.expr) -> bool:
    if isinstance(size, ast.UnaryOp) and isinstance(size.op, ast.USub):
        return True
    return isinstance(size, ast.Constant) and (size.value is None or size.value == 0)


def _is_infinite(size: ast.expr, site: Site) -> bool:
    return site.name(size) == "math.inf" or ast.unparse(size) == "float('inf')"


def _endless_attributes(node: ast.ClassDef, site: Site) -> Iterator[LintHit]:
    made = {name: place for item in ast.walk(node) for name, place in _made_attributes(item, site)}
    if not made:
        return
    grown, taken, measured = _uses(node)
    for name, (call, kind) in made.items():
        if name in grown and (name in taken if kind == "deque" else f"{name}[0]" in taken) and name not in measured:
            yield LintHit(call, f"`self.{name}` is a queue by use and nothing limits it")


def _made_attributes(item: ast.AST, site: Site) -> Iterator[tuple[str, tuple[ast.AST, str]]]:
    """Yield the attributes that start as an endless deque or as an empty list, and where."""
    if not isinstance(item, ast.Assign | ast.AnnAssign) or item.value is None:
        return
    targets = item.targets if isinstance(item, ast.Assign) else [item.target]
    kind = _endless_kind(item.value, site)
    for target in targets if kind else ():
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
            yield target.attr, (item, kind)
        elif isinstance(target, ast.Name) and _is_field(item.value):
            yield target.id, (item, kind)


def _is_field(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func).endswith("field")


def _endless_kind(value: ast.expr, site: Site) -> str:
    if isinstance(value, ast.List):
        return "" if value.elts else "list"
    if not isinstance(value, ast.Call):
        return ""
    factories = [k.value for k in value.keywords if k.arg == "default_factory"]
    name = site.name(factories[0] if factories else value.func)
    is_limited = len(value.args) > 1 or any(k.arg == "maxlen" for k in value.keywords)
    if name == "collections.deque":
        return "" if is_limited else "deque"
    return "list" if name == "list" and not value.args else ""


def _uses(node: ast.ClassDef) -> tuple[set[str], set[str], set[str]]:
    """Collect which attributes of self grow, which are taken from, and which have their length compared."""
    grown, taken, measured = set[str](), set[str](), set[str]()
    for item in ast.walk(node):
        if isinstance(item, ast.Compare):
            measured.update(_measured(item))
        if not (isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute)):
            continue
        owner = _self_attribute(item.func.value)
        if item.func.attr in _GROWING:
            grown.add(owner)
        elif item.func.attr in {"pop", "popleft"}:
            taken |= {owner, f"{owner}[{ast.unparse(item.args[0])}]"} if item.args else {owner}
    return grown, taken, measured


def _measured(item: ast.Compare) -> Iterator[str]:
    for side in (item.left, *item.comparators):
        if isinstance(side, ast.Call) and ast.unparse(side.func) == "len" and side.args:
            yield _self_attribute(side.args[0])


def _self_attribute(node: ast.expr) -> str:
    is_own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return node.attr if is_own and isinstance(node, ast.Attribute) else ""


@rule(
    "PK004",
    "undeclared-queue",
    ast.Call,
    where=Where.SOURCE,
    instead="ask the inventory: `inventory.channel(...)`, `inventory.broadcast(...)`, `inventory.watch(...)`",
)
def undeclared_queue(node: ast.Call, site: Site) -> Iterator[LintHit]:
    """No queue is made outside the inventory.

    A bounded queue that nobody declared has no name, no policy when full, no counter and no place on the
    live page: the first sign of trouble is a user's complaint.

    ```python
    # before
    self._work = Channel("work", capacity=64, full=Full.REFUSE)
    self._audit = asyncio.Queue(maxsize=64)

    # after
    self._work = inventory.channel("work", Job, capacity=64, full=Full.REFUSE)
    self._audit = inventory.channel("audit", Event, capacity=64, full=Full.DROP_OLDEST)
    ```
    """
    name = site.name(node.func)
    is_kernel = name.startswith("penstock.kernel") and name.rpartition(".")[2] in _KERNEL_KINDS
    if is_kernel or (name in _SIZED and _has_size(node)):
        yield LintHit(node, f"`{ast.unparse(node.func)}` makes a queue nobody can see")
