"""Settings from `[tool.penstock.lint]`, checked as strictly as any other configuration."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from fnmatch import fnmatchcase, translate
from pathlib import Path, PurePosixPath

DEFAULT_TESTS = ("tests", "*/tests/*", "test_*.py", "*/test_*.py", "*_test.py", "conftest.py", "*/conftest.py")
_LISTS = (
    "paths",
    "exclude",
    "tests",
    "select",
    "ignore",
    "io-calls",
    "bounded-calls",
    "blocking-calls",
    "deadlines",
    "real-time-marks",
)
_ALLOWANCE_KEYS = {"codes", "paths", "reason"}


class BadConfig(Exception):
    """The configuration cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """Files in which a rule does not apply, with the reason."""

    codes: tuple[str, ...]
    paths: tuple[str, ...]
    reason: str


class Patterns:
    """Globs over dotted names, looked up by their last word first because most names match none."""

    __slots__ = ("_by_last", "_open")

    def __init__(self, globs: tuple[str, ...]) -> None:
        self._by_last: dict[str, list[re.Pattern[str]]] = {}
        self._open: list[re.Pattern[str]] = []
        for glob in globs:
            last = glob.rpartition(".")[2]
            bucket = self._open if "*" in last else self._by_last.setdefault(last, [])
            bucket.append(re.compile(translate(glob)))

    def match(self, name: str) -> bool:
        """Tell whether any glob covers the whole dotted name."""
        candidates = self._by_last.get(name.rpartition(".")[2], ())
        return any(p.match(name) for p in candidates) or any(p.match(name) for p in self._open)


@dataclass(frozen=True, slots=True, kw_only=True)
class LintSettings:
    """What to check and what this project declares about its own calls; paths are relative to `root`."""

    root: Path = field(default_factory=Path)
    paths: tuple[str, ...] = (".",)
    exclude: tuple[str, ...] = ()
    tests: tuple[str, ...] = DEFAULT_TESTS
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    allow: tuple[Allowance, ...] = ()
    io_calls: Patterns = field(default_factory=lambda: Patterns(()))
    bounded_calls: Patterns = field(default_factory=lambda: Patterns(()))
    blocking_calls: Patterns = field(default_factory=lambda: Patterns(()))
    deadlines: Patterns = field(default_factory=lambda: Patterns(()))
    real_time_marks: tuple[str, ...] = ()

    def is_selected(self, code: str) -> bool:
        """Tell whether a rule runs at all; a prefix such as PK00 stands for every code that starts with it."""
        chosen = not self.select or code.startswith(self.select)
        return chosen and not (self.ignore and code.startswith(self.ignore))

    def is_test(self, path: str) -> bool:
        """Tell whether a file is test code."""
        return covers(self.tests, path)

    def is_allowed(self, code: str, path: str) -> bool:
        """Tell whether an allowance lifts this rule from this file."""
        return any(code in allowance.codes and covers(allowance.paths, path) for allowance in self.allow)

    def is_deadline_scope(self, name: str) -> bool:
        """Tell whether the project declares this context manager to be a deadline."""
        return self.deadlines.match(name.removesuffix("()"))

    def is_bounded_call(self, name: str) -> bool:
        """Tell whether the project declares that this call bounds its own time."""
        return self.bounded_calls.match(name)


def covers(globs: tuple[str, ...], path: str) -> bool:
    """Tell whether a file is named by a glob or lies under a directory that one names."""
    parents = [str(parent) for parent in PurePosixPath(path).parents]
    return any(fnmatchcase(path, glob) or glob.rstrip("/") in parents for glob in globs)


def find_pyproject(start: Path) -> Path | None:
    """Find the nearest pyproject.toml at or above a directory."""
    for directory in (start, *start.parents):
        if (candidate := directory / "pyproject.toml").is_file():
            return candidate
    return None


def load(pyproject: Path | None, known_codes: frozenset[str]) -> LintSettings:
    """Read the settings; without a file or a table the defaults hold. Every fault is told in one go."""
    if pyproject is None:
        return LintSettings(root=Path.cwd())
    table = _table(pyproject)
    faults = [*_faults(table), *_unknown_codes(table, known_codes)]
    if faults:
        raise BadConfig(f"{pyproject}: " + "; ".join(faults))
    return _settings(table, pyproject.parent)


def _table(pyproject: Path) -> dict[str, object]:
    try:
        table = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise BadConfig(f"{pyproject}: {exc}") from exc
    for key in ("tool", "penstock", "lint"):
        table = table.get(key, {})
        if not isinstance(table, dict):
            raise BadConfig(f"{pyproject}: {key} must be a table")
    return table


def _faults(table: dict[str, object]) -> list[str]:
    faults = [f"unknown key {key!r}" for key in table if key not in (*_LISTS, "allow")]
    faults += [f"{key} must be a list of strings" for key in _LISTS if key in table and not _is_list(table[key])]
    entries = table.get("allow", [])
    if not isinstance(entries, list):
        return [*faults, "allow must be an array of tables"]
    return faults + [fault for entry in entries for fault in _allowance_faults(entry)]


def _allowance_faults(entry: object) -> list[str]:
    if not isinstance(entry, dict) or set(entry) != _ALLOWANCE_KEYS:
        return ["each allow entry has exactly codes, paths and reason"]
    faults = [f"allow.{key} must be a list of strings" for key in ("codes", "paths") if not _is_list(entry[key])]
    if not str(entry["reason"]).strip():
        faults.append("allow.reason must not be empty")
    return faults


def _unknown_codes(table: dict[str, object], known: frozenset[str]) -> list[str]:
    prefixes = [*_strings(table.get("select")), *_strings(table.get("ignore"))]
    unknown = [prefix for prefix in prefixes if not any(code.startswith(prefix) for code in known)]
    entries = table.get("allow", [])
    for entry in entries if isinstance(entries, list) else []:
        codes = _strings(entry.get("codes")) if isinstance(entry, dict) else ()
        unknown += [code for code in codes if code not in known]
    return [f"unknown rule {code!r}" for code in unknown]


def _is_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _strings(value: object) -> tuple[str, ...]:
    return tuple(value) if isinstance(value, list) and _is_list(value) else ()


def _settings(table: dict[str, object], root: Path) -> LintSettings:
    entries = table.get("allow", [])
    allow = [_allowance(entry) for entry in entries] if isinstance(entries, list) else []
    return LintSettings(
        root=root,
        paths=_strings(table.get("paths")) or (".",),
        exclude=_strings(table.get("exclude")),
        tests=_strings(table.get("tests")) or DEFAULT_TESTS,
        select=_strings(table.get("select")),
        ignore=_strings(table.get("ignore")),
        allow=tuple(allow),
        io_calls=Patterns(_strings(table.get("io-calls"))),
        bounded_calls=Patterns(_strings(table.get("bounded-calls"))),
        blocking_calls=Patterns(_strings(table.get("blocking-calls"))),
        deadlines=Patterns(_strings(table.get("deadlines"))),
        real_time_marks=_strings(table.get("real-time-marks")),
    )


def _allowance(entry: dict[str, object]) -> Allowance:
    return Allowance(
        codes=_strings(entry["codes"]), paths=_strings(entry["paths"]), reason=str(entry["reason"]).strip()
    )
