"""What the rules may know about the place they look at."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.lint.config import Patterns
from penstock.lint.names import (
    FunctionNode,
    NameScope,
    function_scope,
    is_known,
    module_scope,
    resolve,
    resolve_annotation,
)
from penstock.lint.reach import Reach

if TYPE_CHECKING:
    from penstock.lint.config import LintSettings

_CANCEL_CATCHERS = frozenset({"asyncio.CancelledError", "asyncio.exceptions.CancelledError", "BaseException"})
_DEADLINE_WORDS = ("timeout", "deadline", "fail_after", "move_on_after")
_LIMIT_WORDS = ("timeout", "deadline", "budget", "seconds")
# The kernel's own calls: a channel's send ends by its policy, a pool's run is given its seconds.
_SELF_BOUNDED = Patterns(
    ("penstock.kernel*Channel().send", "*.channel().send", "penstock.kernel*Pool().run", "*.pool().run")
)
_PROTOCOLS = frozenset({"Protocol", "BufferedProtocol", "DatagramProtocol", "SubprocessProtocol", "BaseProtocol"})
_CALLBACKS = frozenset(
    {
        "connection_made",
        "connection_lost",
        "data_received",
        "eof_received",
        "get_buffer",
        "buffer_updated",
        "pause_writing",
        "resume_writing",
        "datagram_received",
        "error_received",
    }
)
_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@dataclass(slots=True)
class ClassFrame:
    """The class being walked: what its methods put on self, and what it defines and inherits."""

    node: ast.ClassDef
    bases: list[str]
    methods: set[str]
    attrs: dict[str, str]


@dataclass(slots=True)
class FunctionFrame:
    """The function being walked; the counters say how many such blocks the walk is inside of.

    `loops` counts those that may run for ever; a `for` over something finite is none.
    """

    node: ast.AST
    scope: NameScope
    is_async: bool = False
    deadlines: int = 0
    loops: int = 0
    cleanups: int = 0
    # Last words of the decorators around, outermost included: `real_loop` for `@pytest.mark.real_loop`.
    marks: frozenset[str] = frozenset()


@dataclass(slots=True)
class Site:
    """Where the walk is: rules read it, the walker alone changes it."""

    path: str
    is_test: bool
    package: str
    settings: LintSettings
    frame: FunctionFrame
    class_: ClassFrame | None = None
    awaited: ast.AST | None = None
    reach: Reach = field(default_factory=Reach)
    scopes: dict[ast.AST, NameScope] = field(default_factory=dict)

    @property
    def attrs(self) -> dict[str, str]:
        """Known attributes of the enclosing class's self."""
        return self.class_.attrs if self.class_ is not None else {}

    def name(self, node: ast.AST | None) -> str:
        """Name what an expression refers to (see `penstock.lint.names`)."""
        return resolve(node, self.frame.scope, self.attrs)

    @property
    def on_loop(self) -> bool:
        """Tell a coroutine, or a callback of an asyncio protocol, from code that may run in a thread."""
        node = self.frame.node
        if self.frame.is_async:
            return True
        if self.class_ is None or not isinstance(node, ast.FunctionDef) or node.name not in _CALLBACKS:
            return False
        return any(base.startswith("asyncio.") and base.rpartition(".")[2] in _PROTOCOLS for base in self.class_.bases)

    def scope_of(self, node: FunctionNode | ast.Lambda) -> NameScope:
        """Give a function's own scope, built once."""
        if node not in self.scopes:
            self.scopes[node] = function_scope(node, self.frame.scope, self.package)
        return self.scopes[node]

    def is_own_method(self, func: ast.expr) -> bool:
        """Tell a method of the same class, which is checked where it is written, not where it is called."""
        if self.class_ is None or not isinstance(func, ast.Attribute) or func.attr not in self.class_.methods:
            return False
        return isinstance(func.value, ast.Name) and func.value.id == "self"

    def caught(self, handler: ast.ExceptHandler) -> list[str]:
        """Name the classes an except clause catches; a bare one catches BaseException."""
        if handler.type is None:
            return ["BaseException"]
        types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        return [self.name(kind) for kind in types]

    def catches_cancel(self, handler: ast.ExceptHandler) -> bool:
        """Tell whether a cancellation ends up in this except clause."""
        return any(name in _CANCEL_CATCHERS for name in self.caught(handler))

    def opens_deadline(self, expr: ast.expr) -> bool:
        """Tell whether `async with expr` bounds the time of its body; `timeout(None)` does not."""
        if isinstance(expr, ast.Call) and any(isinstance(a, ast.Constant) and a.value is None for a in expr.args):
            return False
        name = self.name(expr).lower()
        return any(word in name for word in _DEADLINE_WORDS) or self.settings.is_deadline_scope(name)

    def has_limit(self, call: ast.Call) -> bool:
        """Tell whether a call is given its own time limit, or is declared to bound itself."""
        if any(_is_limit(k.arg or "", k.value) for k in call.keywords):
            return True
        if any(_is_seconds(argument) or _is_limit(_last_word(argument), argument) for argument in call.args):
            return True
        name = self.name(call.func)
        return _SELF_BOUNDED.match(name) or self.settings.is_bounded_call(name)


def _is_limit(word: str, value: ast.expr) -> bool:
    is_none = isinstance(value, ast.Constant) and value.value is None
    word = word.lower()
    return not is_none and (word.endswith(("_s", "_ms")) or any(limit in word for limit in _LIMIT_WORDS))


def _is_seconds(value: ast.expr) -> bool:
    """Tell a literal such as 0.25: a float given to a call that waits is how long it may."""
    return isinstance(value, ast.Constant) and isinstance(value.value, float)


def _last_word(node: ast.AST) -> str:
    """Give the words of an argument that say what it is: `self.read_deadline`, `Deadline.after(3, now)`."""
    if isinstance(node, ast.Call):
        return _last_word(node.func)
    if isinstance(node, ast.Attribute):
        return f"{_last_word(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def suspensions(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Yield in source order the points of a coroutine's block at which other tasks may run."""
    for statement in body:
        yield from _suspensions_in(statement)


def _suspensions_in(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, _NESTED):
        return
    is_async_loop = isinstance(node, ast.comprehension) and node.is_async == 1
    if is_async_loop or isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith | ast.Yield | ast.YieldFrom):
        # A comprehension clause carries no position of its own; its iterable does.
        yield node.iter if isinstance(node, ast.comprehension) else node
    for child in ast.iter_child_nodes(node):
        yield from _suspensions_in(child)


def class_frame(node: ast.ClassDef, site: Site) -> ClassFrame:
    """Learn from the class body and from every method what kind of value each attribute of self holds."""
    attrs: dict[str, str] = {}
    methods = [item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
    for statement in node.body:
        _learn(attrs, statement, site.frame.scope, _field_name)
    for method in methods:
        scope = site.scope_of(method)
        for statement in scope.statements:
            _learn(attrs, statement, scope, _self_name)
    return ClassFrame(node, [site.name(base) for base in node.bases], {method.name for method in methods}, attrs)


def _field_name(target: ast.expr) -> str | None:
    return target.id if isinstance(target, ast.Name) else None


def _self_name(target: ast.expr) -> str | None:
    is_self = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    return target.attr if is_self and isinstance(target, ast.Attribute) else None


def _learn(
    attrs: dict[str, str], statement: ast.stmt, scope: NameScope, name_of: Callable[[ast.expr], str | None]
) -> None:
    if isinstance(statement, ast.Assign):
        targets, origin = statement.targets, resolve(statement.value, scope, attrs)
    elif isinstance(statement, ast.AnnAssign):
        targets, origin = [statement.target], resolve_annotation(statement.annotation, scope)
    else:
        return
    for target in targets:
        if (name := name_of(target)) is not None and is_known(origin):
            attrs.setdefault(name, origin)


def module_site(tree: ast.Module, path: str, package: str, settings: LintSettings) -> Site:
    """Make the site at the top of a module."""
    scope = module_scope(tree, package)
    marked = [
        n.value for n in scope.statements if isinstance(n, ast.Assign) and "pytestmark" in map(_last_word, n.targets)
    ]
    marks = marked[0].elts if marked and isinstance(marked[0], ast.List | ast.Tuple) else marked
    return Site(path, settings.is_test(path), package, settings, FunctionFrame(tree, scope, marks=decorations(marks)))


def decorations(decorators: Sequence[ast.expr]) -> frozenset[str]:
    """Give the last word of each decorator or pytest mark."""
    return frozenset(_last_word(decorator).rpartition(".")[2] for decorator in decorators)
