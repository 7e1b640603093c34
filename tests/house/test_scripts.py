"""The commands do what they say: `scripts/test` fails when any step fails, and arguments arrive where they should."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.house.tree import ROOT

# Stands for every tool: notes how it was called, fails when told to, and closes like pytest does.
_TOOL = """#!/bin/sh
call="${0##*/} $*"
echo "$call" >>"$CALLS"
case $call in *"$FAIL"*) exit 1 ;; esac
case $call in *"-m pytest"*) echo "=== 1 passed in 0.01s ===" ;; esac
"""
_TOOLS = [".venv/bin/" + name for name in ("coverage", "lint-imports", "mypy", "penstock", "python", "ruff")]
_STEPS = {
    "ruff format": "ruff format",
    "ruff check": "ruff check",
    "mypy": "mypy",
    "import-linter": "lint-imports",
    "penstock lint": "-m penstock.lint",
    "generated docs": "inventory docs --check",
    "pytest": "-m pytest",
}


class Checkout:
    """The real scripts among tools that only take notes."""

    def __init__(self, here):
        self.here = here
        shutil.copytree(ROOT / "scripts", here / "scripts")
        shutil.copytree(ROOT / ".ci", here / ".ci")
        for tool in [*_TOOLS, "scripts/environment", "scripts/system-packages", "scripts/check-bootstrap"]:
            self._tool(here / tool)

    def _tool(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_TOOL)
        path.chmod(0o755)

    def run(self, *command, fail="nothing at all"):
        """Run a command of the checkout from another folder."""
        environment = {"PATH": "/usr/bin:/bin", "CALLS": str(self.here / "calls"), "FAIL": fail}
        whole = [self.here / command[0], *command[1:]]
        return subprocess.run(whole, cwd="/", env=environment, capture_output=True, text=True, timeout=30, check=False)

    def calls(self):
        return (self.here / "calls").read_text().splitlines()


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


def test_test_passes_when_every_step_passes_and_ends_with_the_closing_line(checkout):
    done = checkout.run("scripts/test")

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "=== 1 passed in 0.01s ==="


@pytest.mark.parametrize("step", _STEPS)
def test_test_fails_when_one_step_fails_and_names_it(checkout, step):
    done = checkout.run("scripts/test", fail=_STEPS[step])

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"scripts/test: failed: {step}."
    assert f"--- {step}: FAILED" in done.stdout


def test_test_runs_the_later_steps_after_a_failure(checkout):
    checkout.run("scripts/test", fail="ruff format")

    assert any("-m pytest" in call for call in checkout.calls())


@pytest.mark.parametrize("arguments", [["tests/kernel", "-k", "a b"], ["-x"]])
def test_test_hands_its_arguments_to_pytest(checkout, arguments):
    done = checkout.run("scripts/test", *arguments)

    assert done.returncode == 0
    assert any(call.startswith(f"python -m pytest {' '.join(arguments)} ") for call in checkout.calls())


def test_a_failing_selection_of_tests_fails(checkout):
    assert checkout.run("scripts/test", "-x", fail="-m pytest").returncode == 1


def test_long_tests_and_the_bootstrap_check_run_only_when_asked(checkout):
    checkout.run("scripts/test")
    short = checkout.calls()
    checkout.run("scripts/test", "--full")
    full = checkout.calls()[len(short) :]

    assert not any(call.startswith("check-bootstrap") for call in short)
    assert any("-m not full" in call for call in short)
    assert any(call.startswith("check-bootstrap") for call in full)
    assert not any("-m not full" in call for call in full)


def test_continuous_integration_runs_what_a_person_runs(checkout):
    done = checkout.run(".ci/run", "tests/kernel")

    assert done.returncode == 0
    assert any("-m pytest tests/kernel" in call for call in checkout.calls())


def test_up_makes_the_environment_and_hands_on_its_arguments(checkout):
    done = checkout.run("scripts/up", "--amnesia", "--json")

    assert done.returncode == 0
    assert checkout.calls() == ["environment runtime", "penstock up --amnesia --json"]


def test_up_does_not_start_without_its_environment(checkout):
    done = checkout.run("scripts/up", fail="environment")

    assert done.returncode == 1
    assert checkout.calls() == ["environment runtime"]


def test_bench_runs_one_area_or_all(checkout):
    (checkout.here / "benchmarks").mkdir()
    for name in ("kernel", "http", "_load"):
        (checkout.here / f"benchmarks/{name}.py").touch()

    checkout.run("scripts/bench", "http", "--json")
    checkout.run("scripts/bench", "--json")

    runs = [call for call in checkout.calls() if call.startswith("python")]
    assert runs == [f"python -m benchmarks.{name} --json" for name in ("http", "http", "kernel")]


def test_bench_refuses_an_unknown_area_and_names_those_there_are(checkout):
    (checkout.here / "benchmarks").mkdir()
    (checkout.here / "benchmarks/kernel.py").touch()

    done = checkout.run("scripts/bench", "kernal")

    assert done.returncode == 2
    assert done.stderr == "scripts/bench: 'kernal' is no area; there are: kernel \n"
