"""The command: `penstock lint`, or `python -m penstock.lint`."""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from penstock.lint.config import (
    BadConfig,
    LintSettings,
    find_pyproject,
    load,
)
from penstock.lint.report import as_json, as_text, explain, statistics
from penstock.lint.runner import ALL_RULES, CODES, Linter, Report

CLEAN, FOUND, BAD_USE = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Check the given paths; 0 when clean, 1 when there are findings, 2 for bad arguments or configuration."""
    options = command().parse_args(argv)
    if options.explain:
        return _explain(options.explain)
    try:
        report = _check(options)
    except BadConfig as exc:
        if options.json:
            print(json.dumps({"error": {"code": "malformed", "detail": str(exc)}}))
        print(f"penstock lint: {exc}", file=sys.stderr)
        return BAD_USE
    print(_shown(report, options))
    return FOUND if report.findings else CLEAN


def command() -> argparse.ArgumentParser:
    """Make the parser; the shell completion reads it too."""
    parser = argparse.ArgumentParser(
        prog="penstock lint", description="Check the concurrency rules of Python code.", allow_abbrev=False
    )
    parser.add_argument("paths", nargs="*", type=Path, help="files or directories (default: those of pyproject.toml)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="a pyproject.toml (default: the nearest)")
    parser.add_argument("--select", action="append", default=[], metavar="CODES", help="only these, e.g. PK001,PK008")
    parser.add_argument("--explain", metavar="CODE", help="say what a rule protects and show an example; `all` for all")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print one JSON object")
    shape.add_argument("--statistics", action="store_true", help="print a count for each rule")
    return parser


def _check(options: argparse.Namespace) -> Report:
    settings = _settings(options)
    paths = options.paths or [settings.root / path for path in settings.paths]
    if missing := [str(path) for path in paths if not path.exists()]:
        raise BadConfig(f"no such file or directory: {', '.join(missing)}")
    # A run makes one big tree after another and no cycles worth looking for.
    gc.disable()
    try:
        return Linter(settings).check_paths(paths)
    finally:
        gc.enable()


def _settings(options: argparse.Namespace) -> LintSettings:
    start = options.paths[0] if options.paths else Path.cwd()
    settings = load(options.config or find_pyproject(start.resolve()), CODES)
    chosen = tuple(code.strip() for codes in options.select for code in codes.split(",") if code.strip())
    if unknown := [code for code in chosen if not any(known.startswith(code) for known in CODES)]:
        raise BadConfig(f"unknown rule {', '.join(unknown)}; `--explain all` lists them")
    return replace(settings, select=chosen, ignore=()) if chosen else settings


def _shown(report: Report, options: argparse.Namespace) -> str:
    if options.json:
        return as_json(report)
    return statistics(report) if options.statistics else as_text(report)


def _explain(code: str) -> int:
    rules = [rule for rule in ALL_RULES if code.lower() in {"all", rule.code.lower(), rule.name}]
    if not rules:
        print(f"penstock lint: there is no rule {code}; `--explain all` lists them", file=sys.stderr)
        return BAD_USE
    print("\n\n".join(explain(rule) for rule in rules))
    return CLEAN
