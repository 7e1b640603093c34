"""Which private functions of a file are entered only inside a deadline."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field


@dataclass(slots=True)
class Reach:
    """Every use of a private name in a file: the function it stands in, and whether a deadline is around it."""

    uses: dict[str, list[tuple[str, bool]]] = field(default_factory=dict)

    def note(self, node: ast.Attribute | ast.Name, inside: ast.AST, *, bounded: bool) -> None:
        """Remember one use; only private names are closed to other files."""
        name = node.attr if isinstance(node, ast.Attribute) else node.id
        if name.startswith("_") and not name.startswith("__"):
            self.uses.setdefault(name, []).append((getattr(inside, "name", ""), bounded))

    def bounded(self) -> set[str]:
        """Name the functions whose every use is awaited in a deadline, or in a function of which that holds."""
        names = set(self.uses)
        while True:
            kept = {name for name in names if all(ok or caller in names for caller, ok in self.uses[name])}
            if kept == names:
                return names
            names = kept
