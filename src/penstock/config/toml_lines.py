"""Finds the line of a key in a TOML document, so that a fault can point there."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"""+|\'\'\'.*?\'\'\'+'  # multi-line strings; a quote may touch the end
    r'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\''
    r"|#[^\n]*|\n|[\[\]{}=]|[^\"'#\n\[\]{}=]+",
    re.DOTALL,
)


class TomlLines:
    """The line of every key and table of a document that tomllib has already accepted."""

    def __init__(self, text: str) -> None:
        """Walk the document once, statement by statement."""
        self._lines: dict[str, int] = {}
        # Tables that have no line of their own: the first that stands inside them.
        self._outer: dict[str, int] = {}
        counts: dict[str, int] = {}
        table = ""
        for line, statement in _statements(text):
            if statement.startswith("["):
                table = name = _header(statement, counts)
            else:
                name = _join(table, _path(f"{statement} = 0"))
            self._lines.setdefault(name, line)
            self._note_outer(name, line)

    def find(self, name: str) -> int | None:
        """Return the line of a dotted name, or of the nearest thing that holds it."""
        while name not in self._lines and name not in self._outer:
            cut = max(name.rfind("."), name.rfind("["))
            if cut < 0:
                return None
            name = name[:cut]
        return self._lines.get(name) or self._outer[name]

    def _note_outer(self, name: str, line: int) -> None:
        while (cut := max(name.rfind("."), name.rfind("["))) > 0:
            name = name[:cut]
            self._outer.setdefault(name, line)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Give each header, and each key up to its `=`, with its line."""
    line, start, depth, head, in_value = 1, 1, 0, "", False
    for piece in _TOKEN.findall(text + "\n"):
        if piece == "\n" and depth == 0:
            if head.strip() and not in_value:
                yield start, head.strip()
            head, in_value, start = "", False, line + 1
        elif piece == "=" and depth == 0 and not in_value:
            yield start, head.strip()
            in_value = True
        elif not piece.startswith("#"):
            depth += (piece in "[{") - (piece in "]}")
            head += "" if in_value else piece
        line += piece.count("\n")


def _header(statement: str, counts: dict[str, int]) -> str:
    path = _path(statement)
    if not statement.startswith("[["):
        return path
    counts[path] = counts.get(path, -1) + 1
    return f"{path}[{counts[path]}]"


def _path(document: str) -> str:
    """Let tomllib itself read the name: the one path through a document of one statement."""
    node: object = tomllib.loads(document)
    names: list[str] = []
    while node and isinstance(node, (dict, list)):
        if isinstance(node, list):
            node = node[0]
            continue
        name = next(iter(node))
        names.append(name)
        node = node[name]
    return ".".join(names)


def _join(table: str, name: str) -> str:
    return f"{table}.{name}" if table else name
