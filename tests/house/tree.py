"""The repository as data: paths and texts, read once, so that a rule can also be run on a planted tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# The planted faults are the one place where the words that the rules look for must stand.
PLANTED = "tests/house/planted.py"

# Made by tools, and not part of the repository.
_MADE = {"__pycache__", "node_modules"}
_TOP = ("src", "tests", "docs", "scripts", "benchmarks", "changes", "models", "deploy", "examples", ".ci", ".github")
_TEXT = {".py", ".md", ".toml", ".lock", ".in", ".html", ".css", ".js", ".tla", ".cfg", ".service", ".yaml", ".yml", ""}


class Tree:
    """Texts by path, relative to the root and with forward slashes."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = dict(texts)

    @cached_property
    def python(self) -> dict[str, ast.Module]:
        """Parse every Python file, leaving out those that are data for a test."""
        return {
            path: ast.parse(text, path)
            for path, text in self.texts.items()
            if path.endswith(".py") and "/fixtures/" not in path and path != PLANTED
        }

    def source(self) -> Iterator[tuple[str, ast.Module]]:
        """Give the modules of the product."""
        return ((path, module) for path, module in self.python.items() if path.startswith("src/"))

    def markdown(self) -> Iterator[tuple[str, str]]:
        """Give the pages."""
        return ((path, text) for path, text in self.texts.items() if path.endswith(".md"))

    def written(self) -> Iterator[tuple[str, str]]:
        """Give everything that a person wrote and a reader may see."""
        return ((path, text) for path, text in self.texts.items() if path not in {PLANTED, "LICENSE"})


def _files() -> Iterator[Path]:
    # In a second worktree, `.git` is a file that names a path of this machine.
    yield from (path for path in ROOT.iterdir() if path.is_file() and path.name != ".git")
    for top in _TOP:
        yield from (path for path in (ROOT / top).rglob("*") if path.is_file() and not _MADE & set(path.parts))


@cache
def repository() -> Tree:
    """Read the working tree."""
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
        for path in _files()
        if path.suffix in _TEXT and not path.name.endswith(".swp") and "corpus" not in path.parts
    }
    return Tree(texts)


def module_name(path: str) -> str:
    """Name the module that a file under src holds: `src/penstock/kernel/__init__.py` is `penstock.kernel`."""
    return path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
