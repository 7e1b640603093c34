"""A report for people and for programs."""

from __future__ import annotations

import json
from collections import Counter

from penstock.lint.finding import LintFinding, LintRule
from penstock.lint.runner import ALL_RULES, Report


def as_text(report: Report) -> str:
    """Write one line a finding, then the summary."""
    lines = [f"{f.path}:{f.line}:{f.column}: {f.code} {f.message}" for f in report.findings]
    return "\n".join([*lines, summary(report)])


def summary(report: Report) -> str:
    """Say how many findings, waivers and allowances there were."""
    count = len(report.findings)
    verdict = "no findings" if count == 0 else f"{count} finding" + ("s" if count > 1 else "")
    counted = f"{len(report.waived)} waived, {report.allowed.total()} allowed by configuration"
    return f"{verdict} in {report.files} files ({counted})"


def as_json(report: Report) -> str:
    """Write the whole report as one JSON object."""
    waived = [_plain(finding) | {"reason": waiver.reason} for finding, waiver in report.waived]
    return json.dumps(
        {
            "files": report.files,
            "findings": [_plain(finding) for finding in report.findings],
            "waived": waived,
            "allowed": dict(sorted(report.allowed.items())),
        },
        indent=2,
    )


def _plain(finding: LintFinding) -> dict[str, object]:
    return {
        "path": finding.path,
        "line": finding.line,
        "column": finding.column,
        "code": finding.code,
        "name": finding.name,
        "message": finding.message,
    }


def statistics(report: Report) -> str:
    """Write a row for each rule that found anything: open, waived, allowed."""
    open_, waived = Counter(f.code for f in report.findings), Counter(f.code for f, _ in report.waived)
    rows = [f"{'code':<6} {'open':>6} {'waived':>6} {'allowed':>7}  rule"]
    for rule in ALL_RULES:
        counts = (open_[rule.code], waived[rule.code], report.allowed[rule.code])
        if any(counts):
            rows.append(f"{rule.code:<6} {counts[0]:>6} {counts[1]:>6} {counts[2]:>7}  {rule.name}")
    return "\n".join([*rows, summary(report)])


def explain(rule: LintRule) -> str:
    """Write a rule's page: what it protects, why, an example, and what to write instead."""
    where = f"Checked in: {rule.where.value}."
    instead = f"Instead: {rule.instead}.\n\n" if rule.instead else ""
    return f"### {rule.code} {rule.name}\n\n{rule.explanation}\n\n{instead}{where}"
