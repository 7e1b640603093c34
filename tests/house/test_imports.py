"""Dependencies point one way, and every contract that says so is shown to break."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.house.tree import ROOT, module_name, repository

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS = PROJECT["tool"]["importlinter"]["contracts"]

# Wrong imports: the contract that forbids it, where it stands, what it imports.
FORBIDDEN = [
    ("Dependencies point one way", "kernel/bad.py", "penstock.config"),
    ("Dependencies point one way", "config/bad.py", "penstock.net"),
    ("Dependencies point one way", "services/one/bad.py", "penstock.admin"),
    ("Dependencies point one way", "node.py", "penstock.lint"),
    ("Commands use the test kit only through weave", "cli/bad.py", "penstock.testing"),
    ("Dependencies point one way", "testing/bad.py", "penstock.weave"),
    ("Dependencies point one way", "sdk/bad.py", "penstock.services"),
    ("Dependencies point one way", "rpc/bad.py", "penstock.sdk"),
    ("Services are strangers to each other", "services/one/bad.py", "penstock.services.two"),
    ("The kernel stands on the standard library alone", "kernel/bad.py", "msgspec"),
    ("Pure modules do no I/O and read no clock", "wire/bad.py", "asyncio"),
    ("Pure modules do no I/O and read no clock", "contracts/__init__.py", "time"),
    ("Pure modules do no I/O and read no clock", "services/one/core.py", "random"),
]
PACKAGES = [
    "admin", "cli", "client", "config", "contracts", "kernel", "lint", "net", "rpc", "sdk", "services",
    "services/one", "services/two",
    "testing", "weave", "wire",
]  # fmt: skip


@pytest.fixture
def skeleton(tmp_path):
    """Make a package with the floors of the house, empty, under the real contracts."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in ["", *PACKAGES]:
        folder = tmp_path / "src/penstock" / package
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").write_text('"""A floor."""\n')
    (tmp_path / "src/penstock/node.py").write_text('"""A floor."""\n')
    return tmp_path


def _lint_imports(where: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    environment = {"PYTHONPATH": "src", "PATH": "/usr/bin:/bin", "COLUMNS": "200"}
    return subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_every_contract_has_a_planted_fault():
    assert {contract["name"] for contract in CONTRACTS} == {name for name, _, _ in FORBIDDEN}


def test_contracts_are_kept_by_an_empty_house(skeleton):
    done = _lint_imports(skeleton)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("contract", "where", "imported"), FORBIDDEN)
def test_contract_breaks_on_its_planted_fault(skeleton, contract, where, imported):
    (skeleton / "src/penstock" / where).write_text(f"import {imported}\n")

    done = _lint_imports(skeleton)

    assert re.findall(r"^(.+) BROKEN$", done.stdout, re.MULTILINE) == [contract], done.stdout + done.stderr


def test_house_keeps_its_contracts():
    done = _lint_imports(ROOT)

    assert done.returncode == 0, done.stdout + done.stderr


def _roots(module: ast.Module) -> set[str]:
    """Name the top-level packages that a module imports."""
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def _foreign(prefix: str) -> set[tuple[str, str]]:
    """Pair the files under a folder with what they import from outside the standard library."""
    known = {*sys.stdlib_module_names, "penstock", "tests", "benchmarks"}
    tree = repository().python
    return {(path, root) for path in tree if path.startswith(prefix) for root in _roots(tree[path]) - known}


@pytest.mark.parametrize("package", ["kernel", "lint"])
def test_package_stands_on_the_standard_library_alone(package):
    assert _foreign(f"src/penstock/{package}/") == set()


def test_linter_can_be_used_without_the_product():
    tree = repository().python
    outside = re.compile(r"^\s*(?:from|import) penstock\.(?!lint\b)", re.MULTILINE)

    assert [
        path for path in tree if path.startswith("src/penstock/lint/") and outside.search(repository().texts[path])
    ] == []


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", name)[0]).lower()


_packages = cache(packages_distributions)  # it reads what is installed, every time


def _distributions(root: str) -> set[str]:
    """Name what installs a package; a namespace such as opentelemetry comes from several."""
    return {_normal(name) for name in _packages().get(root, [root])}


def test_product_declares_what_it_imports():
    project = PROJECT["project"]
    extras = [name for names in project["optional-dependencies"].values() for name in names]
    declared = {_normal(name) for name in [*project["dependencies"], *extras]}

    assert {(path, root) for path, root in _foreign("src/") if not _distributions(root) & declared} == set()


def test_tests_import_only_what_the_lock_installs():
    locked = set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements-dev.lock").read_text(), re.MULTILINE))

    # Those programs run in an environment of their own.
    here = {(path, root) for path, root in _foreign("tests/") if not path.startswith("tests/foreign/programs/")}
    assert {(path, root) for path, root in here if not _distributions(root) & locked} == set()


def test_every_module_lies_in_a_package():
    folders = {path.rpartition("/")[0] for path, _ in repository().source()}

    assert [module_name(folder) for folder in folders if f"{folder}/__init__.py" not in repository().texts] == []
