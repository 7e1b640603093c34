"""Waivers: `# lint: allow PK005 <reason>` on the line, or on a line of its own above it."""

from __future__ import annotations

import io
import re
import tokenize
from dataclasses import dataclass

from penstock.lint.finding import LintFinding, LintRule

MARK = "lint: allow"
_WAIVER = re.compile(r"#\s*lint: allow\b\s*(?P<codes>[A-Z]+\d+(?:\s*,\s*[A-Z]+\d+)*)?\s*(?P<reason>[^#]*)")
_SILENT = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT})

UNREADABLE = LintRule(
    code="PK900",
    name="unreadable",
    explanation="Every file can be read.\n\nA file that does not parse, or nests too deeply to walk, is not checked.",
    instead="make it valid Python in UTF-8, or exclude it in the configuration",
)
BAD_WAIVER = LintRule(
    code="PK901",
    name="bad-waiver",
    explanation="Every waiver names a rule that exists and a reason.\n\n"
    "```python\n# before\nloop.call_soon(step)  # lint: allow PK006\n\n"
    "# after\nloop.call_soon(step)  # lint: allow PK006 the scheduler is made of callbacks\n```",
    instead="`# lint: allow PK005 <why it is right here>`",
)
STALE_WAIVER = LintRule(
    code="PK902",
    name="stale-waiver",
    explanation="Every waiver hits something.\n\n"
    "A waiver whose line is clean would hide the next fault on that line; delete it.",
    instead="delete the waiver",
)
HOUSEKEEPING = (UNREADABLE, BAD_WAIVER, STALE_WAIVER)


@dataclass(frozen=True, slots=True)
class Waiver:
    """One waiver comment: where it stands, the line it is about, what it waives and why."""

    line: int
    target: int
    codes: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class WaiverResult:
    """The findings of a file parted by its waivers."""

    open: list[LintFinding]
    waived: list[tuple[LintFinding, Waiver]]


def read_waivers(source: str) -> list[Waiver]:
    """Find the waiver comments of a file that parses; text inside strings is none."""
    if MARK not in source:
        return []
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    code_lines = sorted({token.start[0] for token in tokens if token.type not in _SILENT})
    return [
        _waiver(token, match, code_lines)
        for token in tokens
        if token.type == tokenize.COMMENT and (match := _WAIVER.search(token.string))
    ]


def _waiver(token: tokenize.TokenInfo, match: re.Match[str], code_lines: list[int]) -> Waiver:
    line = token.start[0]
    stands_alone = not token.line[: token.start[1]].strip()
    target = next((number for number in code_lines if number > line), line) if stands_alone else line
    codes = tuple(code.strip() for code in (match["codes"] or "").split(",") if code.strip())
    return Waiver(line, target, codes, match["reason"].strip())


def apply(findings: list[LintFinding], waivers: list[Waiver], path: str, known: frozenset[str]) -> WaiverResult:
    """Part the findings; `known` are the codes that ran, so that a waiver of another rule is not stale."""
    verdict = WaiverResult([], [])
    used: set[tuple[Waiver, str]] = set()
    for finding in findings:
        waiver = next((w for w in waivers if _covers(w, finding)), None)
        if waiver is None:
            verdict.open.append(finding)
        else:
            used.add((waiver, finding.code))
            verdict.waived.append((finding, waiver))
    for waiver in waivers:
        verdict.open.extend(_stale(waiver, used, path, known))
    return verdict


def _covers(waiver: Waiver, finding: LintFinding) -> bool:
    return bool(waiver.reason) and finding.code in waiver.codes and finding.line <= waiver.target <= finding.end_line


def _stale(waiver: Waiver, used: set[tuple[Waiver, str]], path: str, known: frozenset[str]) -> list[LintFinding]:
    if not waiver.reason:
        return []  # It waives nothing and is reported as such.
    unused = [code for code in waiver.codes if code in known and (waiver, code) not in used]
    return [_at(STALE_WAIVER, waiver, path, f"no {code} on line {waiver.target}") for code in unused]


def faults(waivers: list[Waiver], path: str, waivable: frozenset[str]) -> list[LintFinding]:
    """Report the waivers that give no reason, no code, or a code that cannot be waived."""
    found = []
    for waiver in waivers:
        if not waiver.codes or not waiver.reason:
            found.append(_at(BAD_WAIVER, waiver, path, "a rule or a reason is missing"))
        found += [
            _at(BAD_WAIVER, waiver, path, f"{c} is no rule that can be waived")
            for c in waiver.codes
            if c not in waivable
        ]
    return found


def _at(rule: LintRule, waiver: Waiver, path: str, what: str) -> LintFinding:
    return LintFinding(path, waiver.line, 1, rule.code, rule.name, rule.message(what), waiver.line)
