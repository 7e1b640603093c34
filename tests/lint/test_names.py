"""A name leads to the same API whichever way it was imported, and a shadowed one leads nowhere."""

from __future__ import annotations

import ast
from keyword import iskeyword

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.lint.names import function_scope, module_scope, resolve
from penstock.lint.rules.banned import BANNED
from penstock.lint.rules.blocking import BLOCKING, BLOCKING_MODULES
from penstock.lint.rules.clocks import WALL_CLOCKS
from tests.lint.sources import check, codes


def resolved(source: str, expression: str, package: str = "") -> str:
    return resolve(ast.parse(expression, mode="eval").body, module_scope(ast.parse(source), package), {})


def spellings(name: str) -> list[tuple[str, str]]:
    """List the ways to import a dotted name, each with the expression that then means it."""
    module, _, last = name.rpartition(".")
    if not module:
        return [("", name)]
    top, _, rest = module.partition(".")
    inner = f"{rest}.{last}" if rest else last
    return [
        (f"import {top}", name),
        (f"import {top} as alias", f"alias.{inner}"),
        (f"from {top} import {inner.partition('.')[0]}", inner),
        (f"from {module} import {last} as alias", "alias"),
        (f"from {top} import *", inner),
    ]


@pytest.mark.parametrize("name", sorted(BLOCKING))
def test_every_blocking_call_is_found_under_every_import(name):
    for imported, expression in spellings(name):
        assert codes(f"{imported}\nasync def f(x):\n    {expression}(x)\n") == ["PK008"], imported


@pytest.mark.parametrize("module", BLOCKING_MODULES)
def test_every_function_of_a_blocking_module_is_found(module):
    assert codes(f"import {module.rstrip('.')}\nasync def f(x):\n    {module}anything(x)\n") == ["PK008"]


@pytest.mark.parametrize("name", sorted(WALL_CLOCKS))
def test_every_wall_clock_is_found_under_every_import(name):
    for imported, expression in spellings(name):
        assert codes(f"{imported}\nread = {expression}\n") == ["PK011"], imported


@pytest.mark.parametrize("name", sorted(BANNED))
def test_every_banned_api_is_found_under_every_import(name):
    for imported, expression in spellings(name):
        assert codes(f"{imported}\nused = {expression}\n") == ["PK017"], imported


@given(alias=st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(lambda word: not iskeyword(word)))
def test_any_alias_leads_to_the_api(alias):
    assert resolved(f"import time as {alias}", f"{alias}.sleep") == "time.sleep"


@pytest.mark.parametrize(
    ("source", "expression", "expected"),
    [
        ("import a.b", "a.b.c", "a.b.c"),
        ("import a.b as x", "x.c", "a.b.c"),
        ("from a.b import c", "c.d", "a.b.c.d"),
        ("from . import sibling", "sibling.x", "pack.age.sibling.x"),
        ("from .sibling import x", "x", "pack.age.sibling.x"),
        ("from ..other import x", "x", "pack.other.x"),
        ("try:\n    import fast as c\nexcept ImportError:\n    c = None", "c.x", "fast.x"),
        ("if True:\n    from a import b", "b", "a.b"),
        ("import a\nx = a.Kind()", "x.method", "a.Kind().method"),
        ("import a\nx: a.Kind = make()", "x.method", "a.Kind().method"),
        ("import a\nx: 'a.Kind | None' = None", "x.method", "a.Kind().method"),
        ("import a\nfrom typing import Optional\nx: Optional[a.Kind] = None", "x.y", "a.Kind().y"),
        ("import a\nx: a.Kind[int]", "x.y", "a.Kind().y"),
        ("import a\nwith a.opened() as x:\n    x", "x.y", "a.opened().y"),
        ("import a\nx = a.f", "x", "a.f"),
        ("def open(path): ...", "open", "?open"),
        ("for open in (): ...", "open", "?open"),
        ("open, x = 1, 2", "open", "?open"),
        ("", "open", "open"),
        ("", "(1).real", "?.real"),
    ],
)
def test_names_are_followed_to_their_origin(source, expression, expected):
    assert resolved(source, expression, "pack.age") == expected


def test_parameters_and_locals_shadow_imports():
    tree = ast.parse("import time\ndef f(time, *args, **kwargs):\n    args = 1")
    function = tree.body[1]
    assert isinstance(function, ast.FunctionDef)
    scope = function_scope(function, module_scope(tree, ""), "")

    assert scope.lookup("time") == "?time"
    assert scope.lookup("kwargs") == "?kwargs"


def test_an_unreadable_annotation_is_an_unknown_origin():
    assert codes("def f(x: 'not a type'):\n    x.read()\n") == []


def test_attributes_are_learned_from_class_bodies_and_methods():
    source = """
        import threading

        class Store:
            shared = threading.Lock()

            def __init__(self, door: threading.RLock):
                self._door = door

            async def f(self, work):
                with self.shared:
                    await work()
                with self._door:
                    await work()
    """

    assert [finding.line for finding in check(source).findings] == [11, 13]


def test_a_nested_class_does_not_lend_its_self_to_the_outer_one():
    source = """
        import threading

        class Outer:
            class Inner:
                def __init__(self):
                    self.door = threading.Lock()

            async def f(self, work):
                with self.door:
                    await work()
    """

    assert codes(source) == []
