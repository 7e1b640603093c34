"""Tidy rules for the layout: packages and their maps, names, halves of classes, purity, line lengths."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath

from tests.house.tree import Tree

LINE_CHARACTERS_MAX = 120
PACKAGE_MODULES_MAX = 30
CONSTRUCTOR_WORDS_MIN = 5

# Beginnings of paths that are being rewritten just now: sizes, maps and line lengths there are not held against them.
# A row goes when its rewrite has landed; the tuple is meant to be empty.
UNDER_REPAIR: tuple[str, ...] = ()

# A package of commands has one module a command, however many there are.
_MAY_BE_LARGE = frozenset({"src/penstock/cli/commands"})
_ARCHITECTURE = "docs/ARCHITECTURE.md"
_GLOSSARY = "docs/glossary.md"
_IMPURE = frozenset({"asyncio", "os", "random", "select", "selectors", "socket", "ssl", "threading", "time", "uvloop"})
_PURE = re.compile(r"\bPure[.:]")
_MAP_LINE = re.compile(r"^(\w+/?(?:, \w+/?)*) {2,}\S", re.MULTILINE)


def _packages(tree: Tree) -> dict[str, ast.Module]:
    """Give the packages of the product by their folder."""
    return {
        path.removesuffix("/__init__.py"): module for path, module in tree.source() if path.endswith("/__init__.py")
    }


def _members(tree: Tree, package: str) -> Iterator[str]:
    """Name the modules and subpackages of a package."""
    for path, _ in tree.source():
        inside = PurePosixPath(path)
        if str(inside.parent) == package and inside.name != "__init__.py":
            yield inside.stem
        if inside.name == "__init__.py" and str(inside.parent.parent) == package:
            yield inside.parent.name


def modules_are_in_their_map(tree: Tree) -> list[str]:
    """The docstring of a package names each of its modules and subpackages."""
    return [
        f"{package}/__init__.py: its map does not name {member}"
        for package, module in _packages(tree).items()
        if not package.startswith(UNDER_REPAIR)
        for member in _members(tree, package)
        if not re.search(rf"(?<![\w.]){member}(?!\w)", ast.get_docstring(module) or "")
    ]


def maps_name_only_what_is_there(tree: Tree) -> list[str]:
    """A line of a package's map that names no module or subpackage leads astray."""
    return [
        f"{package}/__init__.py: its map names {name}, which is not there"
        for package, module in _packages(tree).items()
        if package.count("/") > 1 and not package.startswith(UNDER_REPAIR)
        for line in _MAP_LINE.findall(ast.get_docstring(module) or "")
        for name in line.replace("/", "").split(", ")
        if name not in _members(tree, package)
    ]


def packages_are_small(tree: Tree) -> list[str]:
    """A package of more than 30 modules needs folders."""
    counts = Counter(path.rpartition("/")[0] for path, _ in tree.source() if not path.endswith("/__init__.py"))
    return [
        f"{package}: {n} modules, at most {PACKAGE_MODULES_MAX}"
        for package, n in counts.items()
        if n > PACKAGE_MODULES_MAX and package not in _MAY_BE_LARGE and not package.startswith(UNDER_REPAIR)
    ]


def architecture_names_every_package(tree: Tree) -> list[str]:
    """A package that the architecture page does not name cannot be found from it."""
    page = tree.texts.get(_ARCHITECTURE, "")
    folders = (package.removeprefix("src/penstock").strip("/") for package in _packages(tree))
    return [
        f"{_ARCHITECTURE}: does not name {folder}/"
        for folder in folders
        if folder and not re.search(rf"`{re.escape(folder)}/?`", page)
    ]


def _public_classes(tree: Tree) -> Iterator[tuple[str, ast.ClassDef]]:
    for path, module in tree.source():
        for node in module.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield path, node


def public_class_names_are_unique(tree: Tree) -> list[str]:
    """A public class has a name of its own in the whole product."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, node in _public_classes(tree):
        places[node.name].append(path)
    return [f"{name}: in {', '.join(paths)}" for name, paths in places.items() if len(paths) > 1]


def no_class_is_cut_in_halves(tree: Tree) -> list[str]:
    """A base class that lies in a sister file and serves one class alone is the half of that class."""
    homes = {node.name: (path, node) for path, node in _all_classes(tree)}
    children: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for path, node in _all_classes(tree):
        for base in node.bases:
            children[_last_name(base)].append((path, node.name))
    exported = {name for _, module in tree.source() for name in _exports(module)}
    used = {name for module in tree.python.values() for name in _made(module)}
    return [
        f"{path}: {child} is cut in halves: {name} in {homes[name][0]} serves it alone"
        for name, [(path, child), *more] in children.items()
        if name in homes and not more and name not in exported | used
        if _is_sister(path, homes[name][0]) and not _is_abstract(homes[name][1])
        if not path.startswith(UNDER_REPAIR)
    ]


def glossary_names_exist(tree: Tree) -> list[str]:
    """A class that the glossary names in code is there; otherwise a reader looks for it in vain."""
    known = {node.name for _, node in _all_classes(tree)}
    named = re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`", tree.texts.get(_GLOSSARY, ""))
    return [f"{_GLOSSARY}: there is no class {name}" for name in named if name not in known]


def _all_classes(tree: Tree) -> Iterator[tuple[str, ast.ClassDef]]:
    for path, module in tree.source():
        yield from ((path, node) for node in module.body if isinstance(node, ast.ClassDef))


def _is_sister(path: str, other: str) -> bool:
    return path != other and path.rpartition("/")[0] == other.rpartition("/")[0]


def _is_abstract(node: ast.ClassDef) -> bool:
    named = {_last_name(base) for base in node.bases}
    return bool(named & {"ABC", "Protocol"}) or any(
        _last_name(mark) == "abstractmethod"
        for method in node.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
        for mark in method.decorator_list
    )


def _last_name(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=inner) | ast.Call(func=inner):
            return _last_name(inner)
    return ""


def _exports(module: ast.Module) -> Iterator[str]:
    for node in module.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=names)):
                yield from (
                    name.value for name in names if isinstance(name, ast.Constant) and isinstance(name.value, str)
                )


def _made(module: ast.Module) -> Iterator[str]:
    """Name what a module calls: a class of which objects are made stands by itself."""
    return (_last_name(node.func) for node in ast.walk(module) if isinstance(node, ast.Call))


def pure_modules_do_no_io(tree: Tree) -> list[str]:
    """A module that says "Pure.", or whose package says so, imports no clock, no chance, no loop and no I/O."""
    pure = {path.removesuffix("__init__.py") for path, module in tree.source() if _says_pure(module)}
    return [
        f"{path}: says that it is pure and imports {name}"
        for path, module in tree.source()
        if path in pure or any(path.startswith(folder) for folder in pure if folder.endswith("/"))
        for name in _imported_roots(module)
        if name in _IMPURE and not path.startswith(UNDER_REPAIR)
    ]


def _says_pure(module: ast.Module) -> bool:
    return bool(_PURE.search((ast.get_docstring(module) or "").partition("\n\n")[0]))


def _imported_roots(module: ast.Module) -> Iterator[str]:
    """Name the top-level packages that a module imports at run time: a type alone does no I/O."""
    for_types = {
        inner
        for node in ast.walk(module)
        if isinstance(node, ast.If) and _last_name(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in (each for each in ast.walk(module) if each not in for_types):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def lines_are_short(tree: Tree) -> list[str]:
    """A line of Python ends at 120 characters, in docstrings and comments too."""
    return [
        f"{path}:{number}: {len(line)} characters, at most {LINE_CHARACTERS_MAX}"
        for path in tree.python
        if not path.startswith(UNDER_REPAIR)
        for number, line in enumerate(tree.texts[path].split("\n"), 1)
        if len(line) > LINE_CHARACTERS_MAX
    ]


def constructors_say_something_or_nothing(tree: Tree) -> list[str]:
    """A docstring of four words on `__init__` only fills a rule: the class says it, or the parameters do."""
    return [
        f"{path}:{node.lineno}: __init__ says only {text!r}"
        for path, module in tree.source()
        if not path.startswith(UNDER_REPAIR)
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
        if (text := ast.get_docstring(node)) and len(text.split()) < CONSTRUCTOR_WORDS_MIN
    ]
