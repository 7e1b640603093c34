"""What a rule is, what it hits, and what is reported."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.lint.site import Site

_COMPOUND = (ast.With, ast.AsyncWith, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)


class Where(Enum):
    """Which files a rule looks at."""

    EVERYWHERE = "everywhere"
    SOURCE = "source"
    TESTS = "tests"


@dataclass(frozen=True, slots=True)
class LintHit:
    """One place where a rule is broken, and what is wrong there in half a sentence."""

    node: ast.AST
    what: str
    # Holds only if the function around it may be entered outside a deadline.
    unless_bounded: bool = False


Check = Callable[[Any, "Site"], Iterator[LintHit]]


def _sees_nothing(_node: ast.AST, _site: Site) -> Iterator[LintHit]:
    return iter(())


@dataclass(frozen=True, slots=True, kw_only=True)
class LintRule:
    """A rule as data: its code, the nodes it wants to see, and the check itself."""

    code: str
    name: str
    # Why the rule exists, with a before and an after; its first line is the invariant.
    explanation: str
    # The replacement that every message ends with; empty when the hit itself names it.
    instead: str
    where: Where = Where.EVERYWHERE
    on: tuple[type[ast.AST], ...] = ()
    check: Check = _sees_nothing

    @property
    def invariant(self) -> str:
        """The promise the rule protects."""
        return self.explanation.partition("\n")[0].rstrip(".")

    def message(self, what: str) -> str:
        """Say which invariant is broken, how, and what to write instead."""
        return f"{self.invariant}: {what}" + (f". Instead: {self.instead}" if self.instead else "")


def rule(
    code: str, name: str, *on: type[ast.AST], instead: str = "", where: Where = Where.EVERYWHERE
) -> Callable[[Check], LintRule]:
    """Make a rule of a check, whose docstring is the explanation."""

    def make(check: Check) -> LintRule:
        text = inspect.getdoc(check) or ""
        return LintRule(code=code, name=name, explanation=text, instead=instead, where=where, on=on, check=check)

    return make


@dataclass(frozen=True, slots=True, order=True)
class LintFinding:
    """A broken rule at a place in a file; `end_line` bounds where a waiver may stand."""

    path: str
    line: int
    column: int
    code: str
    name: str
    message: str
    end_line: int

    @classmethod
    def of(cls, rule: LintRule, hit: LintHit, path: str) -> LintFinding:
        """Turn a hit into a finding that names the invariant and the replacement."""
        line: int = getattr(hit.node, "lineno", 1)
        column: int = getattr(hit.node, "col_offset", 0) + 1
        return cls(path, line, column, rule.code, rule.name, rule.message(hit.what), _last_line(hit.node, line))


def _last_line(node: ast.AST, line: int) -> int:
    """Give the last line a waiver may stand on: the whole expression, but only the head of a block."""
    if isinstance(node, _COMPOUND):
        return max(line, node.body[0].lineno - 1)
    return getattr(node, "end_lineno", None) or line
