"""One walk over a file, which offers every node to the rules that asked for its type."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from penstock.lint.finding import LintHit, LintRule
from penstock.lint.names import FunctionNode
from penstock.lint.site import (
    FunctionFrame,
    Site,
    class_frame,
    decorations,
)

# Annotations are promises about values, not uses of them; the others hold no code.
_SKIPPED_FIELDS = frozenset({"ctx", "op", "ops", "annotation", "returns", "type_comment", "kind", "type_params"})
_CHILD_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {}


class Walker:
    """Walks a tree once; it alone changes the site that the rules read."""

    def __init__(self, site: Site, rules: dict[type[ast.AST], list[LintRule]]) -> None:
        self.site = site
        # The name is that of the function the hit stands in.
        self._hits: list[tuple[LintRule, LintHit, str]] = []
        self._rules = rules
        self._enter: dict[type[ast.AST], Callable[[Any], None]] = {
            ast.FunctionDef: self._enter_function,
            ast.AsyncFunctionDef: self._enter_function,
            ast.Lambda: self._enter_lambda,
            ast.ClassDef: self._enter_class,
            ast.Name: self._enter_reference,
            ast.Attribute: self._enter_reference,
            ast.Await: self._enter_await,
            ast.For: self._enter_loop,
            ast.AsyncFor: self._enter_loop,
            ast.While: self._enter_loop,
            ast.AsyncWith: self._enter_async_with,
            ast.Try: self._enter_try,
            ast.TryStar: self._enter_try,
        }

    def run(self, tree: ast.Module) -> list[tuple[LintRule, LintHit]]:
        """Walk a file; what a deadline in all its callers excuses is known only at the end."""
        self.walk(tree)
        bounded = self.site.reach.bounded()
        return [(rule, hit) for rule, hit, function in self._hits if not (hit.unless_bounded and function in bounded)]

    def walk(self, node: ast.AST) -> None:
        """Check one node, then what lies below it."""
        self._check(node)
        self._enter.get(type(node), self._descend)(node)

    def _check(self, node: ast.AST) -> None:
        for rule in self._rules.get(type(node), ()):
            for hit in rule.check(node, self.site):
                self._hits.append((rule, hit, getattr(self.site.frame.node, "name", "")))

    def _descend(self, node: ast.AST) -> None:
        for name in _CHILD_FIELDS.get(type(node)) or _child_fields(node):
            child = getattr(node, name)
            if isinstance(child, list):
                self._walk_all(child)
            elif isinstance(child, ast.AST):
                self.walk(child)

    def _walk_all(self, nodes: list[Any]) -> None:
        for node in nodes:
            if isinstance(node, ast.AST):
                self.walk(node)

    def _enter_function(self, node: FunctionNode) -> None:
        self._walk_all(node.decorator_list)
        self._walk_defaults(node.args)
        frame = FunctionFrame(node, self.site.scope_of(node), isinstance(node, ast.AsyncFunctionDef))
        frame.marks = decorations(node.decorator_list)
        # A decorator such as @deadline(3.0) bounds the whole body.
        frame.deadlines = sum(self.site.opens_deadline(decorator) for decorator in node.decorator_list)
        self._walk_in(frame, node.body)

    def _enter_lambda(self, node: ast.Lambda) -> None:
        self._walk_defaults(node.args)
        self._walk_in(FunctionFrame(node, self.site.scope_of(node)), [node.body])

    def _walk_defaults(self, args: ast.arguments) -> None:
        self._walk_all([*args.defaults, *args.kw_defaults])

    def _walk_in(self, frame: FunctionFrame, body: list[Any]) -> None:
        outer, self.site.frame = self.site.frame, frame
        frame.marks |= outer.marks
        self._walk_all(body)
        self.site.frame = outer

    def _enter_class(self, node: ast.ClassDef) -> None:
        self._walk_all([*node.decorator_list, *node.bases, *node.keywords])
        outer, self.site.class_ = self.site.class_, class_frame(node, self.site)
        self._walk_in(FunctionFrame(node, self.site.frame.scope, marks=decorations(node.decorator_list)), node.body)
        self.site.class_ = outer

    def _enter_reference(self, node: ast.Name | ast.Attribute) -> None:
        frame, awaited = self.site.frame, self.site.awaited
        is_awaited = isinstance(awaited, ast.Call) and awaited.func is node
        self.site.reach.note(node, frame.node, bounded=is_awaited and frame.deadlines > 0)
        if isinstance(node, ast.Attribute):
            self.walk(node.value)

    def _enter_await(self, node: ast.Await) -> None:
        self.site.awaited = node.value
        self.walk(node.value)

    def _enter_loop(self, node: ast.For | ast.AsyncFor | ast.While) -> None:
        self.walk(node.test if isinstance(node, ast.While) else node.iter)
        is_endless = not isinstance(node, ast.For) or self.site.name(node.iter).startswith("itertools.")
        self.site.frame.loops += is_endless
        self._walk_all(node.body)
        self.site.frame.loops -= is_endless
        self._walk_all(node.orelse)

    def _enter_async_with(self, node: ast.AsyncWith) -> None:
        frame = self.site.frame
        outside = frame.deadlines
        for item in node.items:
            self.walk(item.context_expr)
            frame.deadlines += self.site.opens_deadline(item.context_expr)
        self._walk_all(node.body)
        frame.deadlines = outside

    def _enter_try(self, node: ast.Try) -> None:
        self._walk_all(node.body)
        for handler in node.handlers:
            walk = self._walk_cleanup if self.site.catches_cancel(handler) else self._walk_all
            self._check(handler)
            walk(handler.body)
        self._walk_all(node.orelse)
        self._walk_cleanup(node.finalbody)

    def _walk_cleanup(self, body: list[ast.stmt]) -> None:
        """Walk what runs while a cancellation may be passing: the deadline around it has been spent."""
        frame = self.site.frame
        deadlines, frame.deadlines = frame.deadlines, 0
        frame.cleanups += 1
        self._walk_all(body)
        frame.cleanups -= 1
        frame.deadlines = deadlines


def _child_fields(node: ast.AST) -> tuple[str, ...]:
    fields = tuple(name for name in node._fields if name not in _SKIPPED_FIELDS)
    _CHILD_FIELDS[type(node)] = fields
    return fields
