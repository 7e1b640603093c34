"""From paths to findings: collects the files, walks each once, applies allowances and waivers."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penstock.lint import waivers
from penstock.lint.config import LintSettings, covers
from penstock.lint.finding import LintFinding, LintRule, Where
from penstock.lint.rules import RULES
from penstock.lint.site import module_site
from penstock.lint.waivers import HOUSEKEEPING, UNREADABLE, Waiver
from penstock.lint.walker import Walker

ALL_RULES = (*RULES, *HOUSEKEEPING)
CODES = frozenset(rule.code for rule in ALL_RULES)
_WAIVABLE = frozenset(rule.code for rule in RULES)
_SKIPPED_DIRECTORIES = frozenset({"__pycache__", "node_modules", "build", "dist", "site-packages"})


@dataclass(slots=True)
class Report:
    """What a run found; waived and allowed findings are kept, because they are counted."""

    files: int = 0
    findings: list[LintFinding] = field(default_factory=list)
    waived: list[tuple[LintFinding, Waiver]] = field(default_factory=list)
    allowed: Counter[str] = field(default_factory=Counter)


class Linter:
    """Checks files against one set of rules and settings."""

    def __init__(self, settings: LintSettings, rules: Sequence[LintRule] = RULES) -> None:
        self._settings = settings
        self._rules = [rule for rule in rules if settings.is_selected(rule.code)]
        self._codes = frozenset(rule.code for rule in self._rules)
        self._for_source = _by_node(self._rules, Where.TESTS)
        self._for_tests = _by_node(self._rules, Where.SOURCE)
        self._packages: dict[Path, str] = {}

    def check_paths(self, paths: Sequence[Path]) -> Report:
        """Check files, and every Python file below directories."""
        report = Report()
        for path in _python_files(paths, self._settings):
            self._check_file(path, report)
        report.findings.sort()
        return report

    def check_source(self, source: str, path: str, report: Report, package: str = "") -> None:
        """Check one text and add to the report what it finds; `path` decides which allowances hold."""
        try:
            tree = ast.parse(source)
            hits = self._walk(tree, path, package)
        except (SyntaxError, ValueError, RecursionError) as exc:
            self._report_unreadable(path, exc, report)
            return
        found = waivers.read_waivers(source)
        verdict = waivers.apply(self._lift_allowed(hits, report), found, path, self._codes)
        faults = [*verdict.open, *waivers.faults(found, path, _WAIVABLE)]
        report.findings += [fault for fault in faults if self._settings.is_selected(fault.code)]
        report.waived += verdict.waived

    def _walk(self, tree: ast.Module, path: str, package: str) -> list[LintFinding]:
        site = module_site(tree, path, package, self._settings)
        walker = Walker(site, self._for_tests if site.is_test else self._for_source)
        return sorted({LintFinding.of(rule, hit, path) for rule, hit in walker.run(tree)})

    def _lift_allowed(self, findings: list[LintFinding], report: Report) -> list[LintFinding]:
        kept = []
        for finding in findings:
            if self._settings.is_allowed(finding.code, finding.path):
                report.allowed[finding.code] += 1
            else:
                kept.append(finding)
        return kept

    def _check_file(self, path: Path, report: Report) -> None:
        report.files += 1
        shown = relative(path, self._settings.root)
        try:
            source = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as exc:
            self._report_unreadable(shown, exc, report)
            return
        self.check_source(source, shown, report, self._package_of(path.parent))

    def _report_unreadable(self, path: str, exc: Exception, report: Report) -> None:
        if self._settings.is_selected(UNREADABLE.code):
            line = getattr(exc, "lineno", None) or 1
            message = UNREADABLE.message(f"{type(exc).__name__}: {exc}")
            report.findings.append(LintFinding(path, line, 1, UNREADABLE.code, UNREADABLE.name, message, line))

    def _package_of(self, directory: Path) -> str:
        """Name the package a directory is, for relative imports; a directory without `__init__.py` is none."""
        if directory not in self._packages:
            name = ""
            if (directory / "__init__.py").is_file():
                name = f"{self._package_of(directory.parent)}.{directory.name}".lstrip(".")
            self._packages[directory] = name
        return self._packages[directory]


def relative(path: Path, root: Path) -> str:
    """Show a path from the project's root where it lies below it, with forward slashes."""
    try:
        return path.resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        return path.as_posix()


def _by_node(rules: Sequence[LintRule], without: Where) -> dict[type[ast.AST], list[LintRule]]:
    table: dict[type[ast.AST], list[LintRule]] = {}
    for rule in rules:
        for kind in rule.on if rule.where is not without else ():
            table.setdefault(kind, []).append(rule)
    return table


def _python_files(paths: Sequence[Path], settings: LintSettings) -> Iterator[Path]:
    """Yield files in a stable order; a file given by name is checked even if a pattern excludes it."""
    seen: set[Path] = set()
    for path in paths:
        found = _below(path, settings) if path.is_dir() else [path]
        for file in found:
            if file not in seen:
                seen.add(file)
                yield file


def _below(directory: Path, settings: LintSettings) -> Iterator[Path]:
    for entry in sorted(directory.iterdir()):
        if covers(settings.exclude, relative(entry, settings.root)):
            continue
        if entry.is_dir():
            if not entry.name.startswith(".") and entry.name not in _SKIPPED_DIRECTORIES:
                yield from _below(entry, settings)
        elif entry.suffix == ".py":
            yield entry
