"""Turn expressions into dotted names: imports, aliases, annotations and constructors are followed within a file.

Three spellings come out. `time.sleep` is a name that an import (or a builtin) leads to. `threading.Lock()` is
an instance: the result of that call, or a value annotated with that class. A leading `?` marks a root whose
origin the file does not show, such as a parameter: `?writer.drain`.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")
_BUILTINS = frozenset(dir(builtins))
_WRAPPERS = ("typing.Optional", "typing.Annotated", "typing.Final", "typing.ClassVar")


class NameScope:
    """The names one module or function binds; `statements` are its own, without those of nested functions."""

    __slots__ = ("imported", "names", "parent", "stars", "statements")

    def __init__(self, body: list[ast.stmt], parent: NameScope | None) -> None:
        self.parent = parent
        self.names: dict[str, str] = {}
        self.imported: set[str] = set()
        self.stars: list[str] = [] if parent is None else parent.stars
        self.statements = list(statements(body))

    def lookup(self, name: str) -> str:
        """Resolve a plain name from the inside out; what nobody binds is a builtin or came by a star import."""
        scope: NameScope | None = self
        while scope is not None:
            if (found := scope.names.get(name)) is not None:
                return found
            scope = scope.parent
        if name in _BUILTINS:
            return name
        return f"{self.stars[-1]}.{name}" if self.stars else f"?{name}"

    def is_imported(self, name: str) -> bool:
        """Tell whether an import statement gave this name its meaning here."""
        scope: NameScope | None = self
        while scope is not None:
            if name in scope.names:
                return name in scope.imported
            scope = scope.parent
        return bool(self.stars)

    def bind(self, name: str, origin: str) -> None:
        """Give a name its origin; the first known one stays (`try: import x / except: x = None`)."""
        if self.names.get(name, "?").startswith("?"):
            self.names[name] = origin


def is_known(origin: str) -> bool:
    """Tell whether an origin says more than the name itself; what an inventory declares always does."""
    return not origin.startswith("?") or origin.endswith((".lock()", ".channel()", ".pool()"))


def statements(body: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    """Yield every statement below in source order, without entering nested functions and classes."""
    for node in body:
        if isinstance(node, ast.stmt):
            yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for block in _BLOCKS:
            yield from statements(getattr(node, block, ()))


def resolve(node: ast.AST | None, scope: NameScope, attrs: dict[str, str]) -> str:
    """Name what an expression refers to; `attrs` are the known attributes of the enclosing class's self."""
    if isinstance(node, ast.Name):
        return scope.lookup(node.id)
    if isinstance(node, ast.Attribute):
        if isinstance(node.value, ast.Name) and node.value.id == "self" and node.attr in attrs:
            return attrs[node.attr]
        return f"{resolve(node.value, scope, attrs)}.{node.attr}"
    if isinstance(node, ast.Call):
        return f"{resolve(node.func, scope, attrs)}()"
    if isinstance(node, ast.Await | ast.Subscript | ast.NamedExpr | ast.Starred):
        return resolve(node.value, scope, attrs)
    return "?"


def resolve_annotation(node: ast.AST | None, scope: NameScope) -> str:
    """Name the class an annotation promises an instance of; `X | None` and `Optional[X]` are X."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _resolve_text(node.value, scope)
    if isinstance(node, ast.BinOp):
        left = resolve_annotation(node.left, scope)
        return left if left != "?" else resolve_annotation(node.right, scope)
    if isinstance(node, ast.Subscript):
        base = resolve(node.value, scope, {})
        return resolve_annotation(node.slice, scope) if base in _WRAPPERS else f"{base}()"
    if isinstance(node, ast.Name | ast.Attribute):
        return f"{resolve(node, scope, {})}()"
    return "?"


def _resolve_text(text: str, scope: NameScope) -> str:
    try:
        return resolve_annotation(ast.parse(text, mode="eval").body, scope)
    except SyntaxError:
        return "?"


def module_scope(tree: ast.Module, package: str) -> NameScope:
    """Bind the names of a module; `package` anchors its relative imports."""
    scope = NameScope(tree.body, None)
    _bind_statements(scope, package)
    return scope


def function_scope(node: FunctionNode | ast.Lambda, parent: NameScope, package: str) -> NameScope:
    """Bind the parameters and local names of one function."""
    scope = NameScope([] if isinstance(node, ast.Lambda) else node.body, parent)
    args = node.args
    for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs):
        origin = resolve_annotation(arg.annotation, parent)
        scope.names[arg.arg] = origin if is_known(origin) else f"?{arg.arg}"
    for rest in (args.vararg, args.kwarg):
        if rest is not None:
            scope.names[rest.arg] = f"?{rest.arg}"
    _bind_statements(scope, package)
    return scope


def _bind_statements(scope: NameScope, package: str) -> None:
    for node in scope.statements:
        if isinstance(node, ast.Import):
            _bind_import(scope, node)
        elif isinstance(node, ast.ImportFrom):
            _bind_import_from(scope, node, package)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            scope.bind(node.name, f"?{node.name}")
        else:
            _bind_targets(scope, node)


def _bind_import(scope: NameScope, node: ast.Import) -> None:
    for alias in node.names:
        name = alias.asname or alias.name.partition(".")[0]
        scope.bind(name, alias.name if alias.asname else name)
        scope.imported.add(name)


def _bind_import_from(scope: NameScope, node: ast.ImportFrom, package: str) -> None:
    anchor = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
    module = ".".join(part for part in (anchor, node.module or "") if part)
    for alias in node.names:
        if alias.name == "*":
            scope.stars.append(module)
            continue
        scope.bind(alias.asname or alias.name, f"{module}.{alias.name}")
        scope.imported.add(alias.asname or alias.name)


def _bind_targets(scope: NameScope, node: ast.stmt) -> None:
    if isinstance(node, ast.Assign):
        origin = "?" if isinstance(node.value, ast.Constant) else resolve(node.value, scope, {})
        for target in node.targets:
            _bind_target(scope, target, origin)
    elif isinstance(node, ast.AnnAssign):
        _bind_target(scope, node.target, resolve_annotation(node.annotation, scope))
    elif isinstance(node, ast.With | ast.AsyncWith):
        for item in node.items:
            if item.optional_vars is not None:
                _bind_target(scope, item.optional_vars, resolve(item.context_expr, scope, {}))
    elif isinstance(node, ast.For | ast.AsyncFor):
        _bind_target(scope, node.target, "?")


def _bind_target(scope: NameScope, target: ast.expr, origin: str) -> None:
    if isinstance(target, ast.Name):
        # A name bound to itself (`lock = lock`) would shadow what the outer scope knows.
        scope.bind(target.id, origin if is_known(origin) else f"?{target.id}")
    elif isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            _bind_target(scope, element, "?")
