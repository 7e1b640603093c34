"""Tidy rules for Python files: each takes a tree and returns one sentence a fault."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator

from tests.house.tree import Tree, module_name

FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_VAGUE_STEMS = {"base", "common"}
_VAGUE_WORDS = {"helper", "helpers", "manager", "managers", "misc", "util", "utils"}
_VAGUE_CLASS = re.compile(r"(Helper|Manager|Util|Utils|Misc|Base)s?$")
_STATING = re.compile(r"^(assert|check|expect|must|verify|raises|warns|fail$|sweep|run_state_machine_as_test)")


def _functions(module: ast.Module) -> Iterator[_Function]:
    return (node for node in ast.walk(module) if isinstance(node, _Function))


def _called(node: ast.AST) -> Iterator[str]:
    for call in (n for n in ast.walk(node) if isinstance(n, ast.Call)):
        match call.func:
            case ast.Attribute(attr=name) | ast.Name(id=name):
                yield name.lstrip("_")


def files_are_short(tree: Tree) -> list[str]:
    """A file of more than 800 lines holds more than one concept; most stay under 400."""
    counts = {path: tree.texts[path].count("\n") for path in tree.python}
    return [f"{path}: {n} lines, at most {FILE_LINES_MAX}" for path, n in counts.items() if n > FILE_LINES_MAX]


def functions_are_short(tree: Tree) -> list[str]:
    """A function of more than 70 lines cannot be read at once."""
    return [
        f"{path}:{function.lineno}: {function.name} has {lines} lines, at most {FUNCTION_LINES_MAX}"
        for path, module in tree.python.items()
        for function in _functions(module)
        if (lines := (function.end_lineno or 0) - function.lineno + 1) > FUNCTION_LINES_MAX
    ]


def modules_have_telling_names(tree: Tree) -> list[str]:
    """A vague name is a drawer for everything."""
    return [
        f"{path}: '{part}' says nothing"
        for path in tree.python
        for part in path.removesuffix(".py").split("/")
        if part in _VAGUE_STEMS or _VAGUE_WORDS & set(part.split("_"))
    ]


def classes_have_telling_names(tree: Tree) -> list[str]:
    """A class is named for what it is, not for being one."""
    return [
        f"{path}:{node.lineno}: '{node.name}' says nothing"
        for path, module in tree.source()
        for node in ast.walk(module)
        if isinstance(node, ast.ClassDef) and _VAGUE_CLASS.search(node.name)
    ]


def modules_have_docstrings(tree: Tree) -> list[str]:
    """Every module says what it is for."""
    return [f"{path}: no module docstring" for path, module in tree.python.items() if not ast.get_docstring(module)]


def tests_state_something(tree: Tree) -> list[str]:
    """A test that states nothing cannot fail."""
    return [
        f"{path}:{function.lineno}: {function.name} asserts nothing"
        for path, module in tree.python.items()
        if path.rpartition("/")[2].startswith("test_")
        for function in _functions(module)
        if function.name.startswith("test_") and not _states(function)
    ]


def _states(function: _Function) -> bool:
    asserts = any(isinstance(node, ast.Assert) for node in ast.walk(function))
    return asserts or any(_STATING.match(name) for name in _called(function))


def no_function_is_a_stub(tree: Tree) -> list[str]:
    """A body of `pass` or a NotImplementedError is work that was not done."""
    return [
        f"{path}:{function.lineno}: {function.name} is a stub"
        for path, module in tree.source()
        for function in _functions(module)
        if _is_stub(function)
    ]


def _is_stub(function: _Function) -> bool:
    names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    return isinstance(function.body[-1], ast.Pass) or "NotImplementedError" in names


def no_test_uses_mocks(tree: Tree) -> list[str]:
    """A fake keeps the real contract; a mock agrees with whatever is wrong."""
    return [
        f"{path}: imports {name}"
        for path, module in tree.python.items()
        for name in _imports(module)
        if name == "mock" or name.startswith(("unittest.mock", "mock.", "pytest_mock"))
    ]


def _imports(module: ast.Module) -> Iterator[str]:
    """Name everything that a module imports, `from a import b` giving both `a` and `a.b`."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


# Modules for users, and ways between services that are ready before the first service uses them; such a row then goes.
OFFERED = frozenset(
    {
        "penstock.client.sync",
        "penstock.net.oap.server",
        "penstock.transports.dramatiq",
        "penstock.transports.kombu",
    }
)


def no_module_is_dead(tree: Tree) -> list[str]:
    """A module that no other imports and no entry point names is dead."""
    alive = {*OFFERED, *_entry_points(tree.texts.get("pyproject.toml", "")), *_commands(tree)}
    for path, module in tree.source():
        own = module_name(path)
        alive.update(name for name in _imports(module) if name != own)
    return [
        f"{path}: nobody imports {name}"
        for path, _ in tree.source()
        if (name := module_name(path)) not in alive and not path.endswith(("/__init__.py", "/__main__.py"))
    ]


def _commands(tree: Tree) -> Iterator[str]:
    """Name the modules that the command line loads by the name of the command."""
    for node in ast.walk(tree.python.get("src/penstock/cli/__init__.py", ast.Module([], []))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield f"penstock.cli.commands.{node.value}"


def _entry_points(pyproject: str) -> Iterator[str]:
    project = tomllib.loads(pyproject).get("project", {})
    groups = [project.get("scripts", {}), *project.get("entry-points", {}).values()]
    return (target.partition(":")[0] for group in groups for target in group.values())
