"""Each rule hits exactly the marked lines of its fixtures, and no fixture survives the loss of its rule."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.lint.config import LintSettings
from penstock.lint.finding import LintRule
from penstock.lint.report import explain
from penstock.lint.rules import RULES
from penstock.lint.runner import ALL_RULES, Linter

FIXTURES = Path(__file__).parent / "fixtures"
SETTINGS = LintSettings(root=FIXTURES, tests=("PK018_*",))
_MARK = re.compile(r"# hit((?: PK\d{3})+)")


def marked(path: Path) -> list[tuple[int, str]]:
    """Read what a fixture promises: the line and the code of every finding."""
    lines = enumerate(path.read_text("utf-8").splitlines(), 1)
    return [(number, code) for number, line in lines if (mark := _MARK.search(line)) for code in mark[1].split()]


def found(path: Path, rules: Sequence[LintRule] = RULES) -> list[tuple[int, str]]:
    """Run every rule over a fixture."""
    report = Linter(SETTINGS, rules).check_paths([path])
    return sorted((finding.line, finding.code) for finding in report.findings)


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.py")), ids=lambda path: path.stem)
def test_rules_hit_the_marked_lines_and_no_other(path):
    assert found(path) == marked(path)


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.code)
def test_every_rule_has_a_fixture_it_must_hit_and_one_it_must_not(rule):
    hits = [code for _, code in marked(FIXTURES / f"{rule.code}_hit.py")]

    assert rule.code in hits
    assert marked(FIXTURES / f"{rule.code}_miss.py") == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_without_a_rule_its_fixture_fails(rule):
    path = FIXTURES / f"{rule.code}_hit.py"
    others = [other for other in RULES if other is not rule]

    assert found(path, others) != marked(path)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_every_message_names_the_invariant_and_a_replacement(rule):
    report = Linter(SETTINGS).check_paths([FIXTURES / f"{rule.code}_hit.py"])
    messages = [finding.message for finding in report.findings if finding.code == rule.code]

    assert messages
    assert all(message.startswith(rule.invariant) for message in messages)
    assert all("Instead: " in message or "; " in message for message in messages)


def test_codes_are_unique_and_in_order():
    codes = [rule.code for rule in ALL_RULES]

    assert codes == sorted(set(codes))


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.code)
def test_every_rule_stands_in_the_docs_as_it_explains_itself(rule):
    page = (Path(__file__).parents[2] / "docs" / "lint.md").read_text("utf-8")

    assert explain(rule) in page
