"""Short ways to check a piece of source."""

from __future__ import annotations

from textwrap import dedent

from penstock.lint.config import LintSettings
from penstock.lint.runner import Linter, Report


def check(source: str, settings: LintSettings | None = None, path: str = "src/module.py", package: str = "") -> Report:
    """Check one text with every selected rule."""
    report = Report()
    Linter(settings or LintSettings()).check_source(dedent(source), path, report, package)
    return report


def codes(source: str, settings: LintSettings | None = None, path: str = "src/module.py") -> list[str]:
    """Name the rules that a text breaks."""
    return [finding.code for finding in check(source, settings, path).findings]
