"""Which metrics are declared, and which of them some line of the source changes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.house.tree import Tree

_MAKERS = {"counter", "gauge", "histogram", "summary", "watched"}
_MOVERS = {"inc", "observe", "observe_many", "set", "append"}


@dataclass
class Moves:
    """What was found in all modules together."""

    # By metric: the names its instruments are kept under.
    kept: dict[str, set[str]] = field(default_factory=dict)
    # Metrics that are moved, read or handed on in the line that declares them.
    at_once: set[str] = field(default_factory=set)
    # Names whose `value` some line adds to, or that some line observes or sets.
    moved_names: set[str] = field(default_factory=set)

    def still(self) -> list[str]:
        """Name the metrics that nothing moves."""
        return sorted(
            name for name, names in self.kept.items() if name not in self.at_once and not names & self.moved_names
        )


def read_moves(tree: Tree) -> Moves:
    """Look at every line of the product."""
    moves = Moves()
    for _, module in tree.source():
        parents = {child: node for node in ast.walk(module) for child in ast.iter_child_nodes(node)}
        for node in ast.walk(module):
            moves.moved_names.update(_moved(node))
            for metric in _declared(node):
                names = moves.kept.setdefault(metric, set())
                names.update(_keepers(node, parents))
                if _is_at_once(node, parents[node]):
                    moves.at_once.add(metric)
    return moves


def _declared(node: ast.AST) -> Iterator[str]:
    """Give the metric that a call declares: `metrics.counter(name)`, or `metrics.declare(kind, name)`."""
    match node:
        case ast.Call(func=ast.Attribute(attr=kind), args=[ast.Constant(value=str(name)), *_]) if kind in _MAKERS:
            yield name
        case ast.Call(func=ast.Attribute(attr="declare"), args=[_, ast.Constant(value=str(name)), *_]):
            yield name


def _is_at_once(node: ast.AST, parent: ast.AST) -> bool:
    """Tell whether a declaration's own line moves it, reads it from its owner, or hands it on."""
    match node:
        case ast.Call(func=ast.Attribute(attr="declare")):
            return False
        case ast.Call(keywords=given) if any(word.arg == "read" for word in given):
            return True
    return isinstance(parent, ast.Attribute | ast.Call | ast.Return | ast.Tuple)


def _keepers(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> Iterator[str]:
    """Give the names a declared instrument is assigned to, also as a part of a list or dictionary."""
    above: ast.AST | None = node
    while above is not None and not isinstance(above, ast.stmt):
        above = parents.get(above)
    targets = above.targets if isinstance(above, ast.Assign) else [getattr(above, "target", None)]
    for target in targets:
        for part in target.elts if isinstance(target, ast.Tuple) else [target]:
            yield from _name(part)


def _moved(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.AugAssign(target=ast.Attribute(attr="value", value=kept)):
            yield from _name(kept)
        case ast.Call(func=ast.Attribute(attr=mover, value=kept)) if mover in _MOVERS:
            yield from _name(kept)


def _name(node: ast.AST | None) -> Iterator[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            yield name
        case ast.Subscript(value=kept):
            yield from _name(kept)
