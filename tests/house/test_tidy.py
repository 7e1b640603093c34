"""The house is tidy: layout, sizes, names, dead files, links, words; each rule is shown to find its planted fault."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from tests.house import layout_rules, planted, python_rules, text_rules
from tests.house.tree import ROOT, Tree, repository

Rule = Callable[[Tree], list[str]]


def _rules() -> dict[str, Rule]:
    """Find the rules: the public functions of the three modules."""
    return {
        name: function
        for module in (layout_rules, python_rules, text_rules)
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }


RULES = _rules()


@pytest.mark.parametrize("name", RULES)
def test_house_is_tidy(name):
    faults = RULES[name](repository())

    assert not faults, f"{RULES[name].__doc__}\n" + "\n".join(faults)


@pytest.mark.parametrize(("name", "texts"), [(name, texts) for name, trees in planted.HITS.items() for texts in trees])
def test_rule_finds_its_planted_fault(name, texts):
    assert RULES[name](Tree(texts))


@pytest.mark.parametrize("name", RULES)
def test_rule_leaves_a_good_tree_alone(name):
    assert RULES[name](Tree(planted.GOOD)) == []


def test_every_rule_has_a_planted_fault():
    assert set(planted.HITS) == set(RULES)


def test_the_tree_is_read_whole():
    texts = repository().texts

    assert {"pyproject.toml", ".ci/run", "scripts/test", "src/penstock/__init__.py", "tests/house/test_tidy.py"} <= set(
        texts
    )


def test_commands_are_executable():
    commands = [path for path in [*ROOT.glob("scripts/*"), *ROOT.glob(".ci/*")] if path.suffix == "" and path.is_file()]

    assert [path.name for path in commands if not path.stat().st_mode & 0o111] == []
