"""The locks are whole: every package with hashes, the same versions in all, and nothing about where they come from."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.house.tree import ROOT

LOCKS = {path.name: path.read_text() for path in ROOT.glob("requirements*.lock")}
_ENTRY = re.compile(
    r"^([a-z0-9.-]+)==([^\s;]+)(?: ; [^\\\n]+?)?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n", re.MULTILINE
)


def _versions(lock: str) -> dict[str, str]:
    return {name: version for name, version, _ in _ENTRY.findall(LOCKS[lock])}


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=!~;\[ ]", requirement)[0].lower() for requirement in requirements}


def test_there_is_a_lock_for_running_developing_measuring_and_foreign_clients():
    names = {"", "-dev", "-bench", "-foreign"}
    assert set(LOCKS) == {f"requirements{name}.lock" for name in names}


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_holds_hashed_entries_and_nothing_else(lock):
    assert _versions(lock)
    assert _ENTRY.sub("", LOCKS[lock]) == ""


@pytest.mark.parametrize("line", ["x==1\n", "x==1 \\\n    --hash=md5:0\n", "-e .\n", "--no-index\n", "x @ file:///y\n"])
def test_anything_but_a_hashed_entry_would_be_seen(line):
    assert _ENTRY.sub("", line) == line


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-bench.lock"])
def test_one_environment_can_serve_two_locks(lock):
    developing, other = _versions("requirements-dev.lock"), _versions(lock)

    assert {name: other[name] for name in other if developing.get(name, other[name]) != other[name]} == {}


def test_locks_cover_what_the_project_asks_for():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups, runtime = config["dependency-groups"], _names(config["project"]["dependencies"])

    assert runtime | _names(groups["build"]) <= set(_versions("requirements.lock"))
    assert runtime | _names(groups["dev"]) <= set(_versions("requirements-dev.lock"))
    assert runtime | _names(groups["bench"]) <= set(_versions("requirements-bench.lock"))
    assert runtime | _names(groups["foreign"]) <= set(_versions("requirements-foreign.lock"))
