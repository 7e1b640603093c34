"""What must be documented: each function gives the names of one kind, from the live objects or from the source."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Iterator

from tests.house.tree import repository


def _calls(*names: str) -> Iterator[ast.Call]:
    """Find the calls of functions and methods with these names anywhere in the product."""
    for _, module in repository().source():
        for node in ast.walk(module):
            match node:
                case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in names:
                    yield node


def _texts(call: ast.Call, keyword: str = "") -> Iterator[str]:
    """Give the literal first argument of a call, or the one of this name."""
    given = [word.value for word in call.keywords if word.arg == keyword] if keyword else call.args[:1]
    return (node.value for node in given if isinstance(node, ast.Constant) and isinstance(node.value, str))


def _public(package: str) -> set[str]:
    return set(importlib.import_module(package).__all__)


def kernel_names() -> set[str]:
    """Give the public names of the kernel."""
    return _public("penstock.kernel")


def testing_names() -> set[str]:
    """Give the public names of the test kit."""
    return _public("penstock.testing")


def config_keys() -> set[str]:
    """Give every key of the node's schema, by its dotted name."""
    return set(importlib.import_module("penstock.config").node_schema().keys)


def lint_rules() -> set[str]:
    """Give the codes of the concurrency rules."""
    return {rule.code for rule in importlib.import_module("penstock.lint.rules").RULES}


def metrics() -> set[str]:
    """Give every metric that some line declares."""
    return {name for call in _calls("counter", "gauge", "histogram") for name in _texts(call)}


def routes() -> set[str]:
    """Give the path of every route that some line declares."""
    return {path for call in _calls("Route") for path in _texts(call, "path")}


def commands() -> set[str]:
    """Give every command, as it is typed."""
    return {f"penstock {name}" for name in importlib.import_module("penstock.cli").COMMANDS}


SUBJECTS: dict[str, Callable[[], set[str]]] = {
    "kernel name": kernel_names,
    "test kit name": testing_names,
    "config key": config_keys,
    "lint rule": lint_rules,
    "metric": metrics,
    "route": routes,
    "command": commands,
}
