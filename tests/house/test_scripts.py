"""The commands do what they say: `scripts/test` fails when any step fails, and arguments arrive where they should."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT

# Stands for every tool: notes how it was called, fails when told to, and closes like pytest does.
_TOOL = """#!/bin/sh
call="${0##*/} $*"
echo "$call" >>"$CALLS"
case $call in *"$FAIL"*) exit 1 ;; esac
case $call in *"-m pytest"*) echo "=== 1 passed in 0.01s ===" ;; esac
"""
_TOOLS = [
    ".venv/bin/" + name for name in ("coverage", "lint-imports", "mypy", "penstock", "python", "ruff", "zensical")
]
_STEPS = {
    "ruff format": "ruff format",
    "ruff check": "ruff check",
    "mypy": "mypy",
    "import-linter": "lint-imports",
    "penstock lint": "-m penstock.lint",
    "generated docs": "inventory docs --check",
    "documentation site": "zensical build",
    "pytest": "-m pytest",
}


class Checkout:
    """The real scripts among tools that only take notes."""

    def __init__(self, here):
        self.here = here
        shutil.copytree(ROOT / "scripts", here / "scripts")
        shutil.copytree(ROOT / ".ci", here / ".ci")
        for page in (
            "README.md",
            "docs/x.md",
            "deploy/x.md",
            "examples/x.md",
            "benchmarks/results/x",
            "changes/README.md",
        ):
            (here / page).parent.mkdir(parents=True, exist_ok=True)
            (here / page).write_text("# A page\n")
        for tool in [*_TOOLS, "scripts/environment", "scripts/system-packages", "scripts/check-bootstrap"]:
            self._tool(here / tool)

    def _tool(self, path, text=_TOOL):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def run(self, *command, fail="nothing at all"):
        """Run a command of the checkout from another folder."""
        environment = {"PATH": "/usr/bin:/bin", "CALLS": str(self.here / "calls"), "FAIL": fail}
        whole = [self.here / command[0], *command[1:]]
        return subprocess.run(whole, cwd="/", env=environment, capture_output=True, text=True, timeout=120, check=False)

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


# Builds a site of one page.
_BUILDING = """#!/bin/sh
mkdir -p build/site && cat >build/site/index.html <<'END'
{page}
END
"""


@pytest.mark.parametrize(
    ("page", "code"),
    [
        ('<a href="https://example.org/x">a link that somebody may follow</a><img src="/a.png">', 0),
        ('<link href="https://example.org/x" rel="canonical">', 0),
        ('<img alt="" src="https://example.org/a.png">', 1),
        ("<script async src=https://unpkg.com/mermaid></script>", 1),
        ('<iframe src="//example.org/x"></iframe>', 1),
        ('<link rel="stylesheet" href="https://fonts.example.org/css">', 1),
        ('<link href="https://fonts.example.org" rel="preconnect">', 1),
        ('<pre class="mermaid"><code>flowchart</code></pre>', 1),
    ],
)
def test_the_site_is_refused_when_a_page_loads_something_from_elsewhere(checkout, page, code):
    checkout._tool(checkout.here / ".venv/bin/zensical", _BUILDING.format(page=page))

    done = checkout.run("scripts/docs", "site")
    assert done.returncode == code, done.stdout + done.stderr
    assert ("load something from elsewhere" in done.stderr) is bool(code)


# Leaves what a whole and a killed process leave, and notes what it then finds.
_MEASURING = """#!/bin/sh
case $1 in
    run) touch .coverage/data.a.pid1.Xabcx .coverage/data.a.pid2.Xdefx.Hk8YKe6l1E4h && echo "1 passed" ;;
    combine) ls .coverage >>"$CALLS" ;;
esac
"""


def test_what_a_killed_process_has_half_measured_is_thrown_away(checkout):
    checkout._tool(checkout.here / ".venv/bin/coverage", _MEASURING)

    done = checkout.run("scripts/test", "--full")

    assert done.returncode == 0, done.stdout + done.stderr
    assert [call for call in checkout.calls() if call.startswith("data.")] == ["data.a.pid2.Xdefx.Hk8YKe6l1E4h"]


# --- programs for tests

# Like the real one: installs nothing before its lists are fetched. `lists` tells whether they can be.
_APT_GET = """#!/bin/sh
echo "$*" >>{calls}
case "$*" in
    *update) [ -e {mirror} ] && touch {lists} ;;
    *download-only*) [ -e {lists} ] ;;
esac
"""


@pytest.fixture
def packages(tmp_path):
    """Run `scripts/system-packages` where no program is installed; returns what it said and what apt-get was asked."""

    def run(*, mirror):
        tools, calls = tmp_path / "bin", tmp_path / "apt-calls"
        tools.mkdir()
        for name in ("bash", "env", "timeout", "touch"):
            (tools / name).symlink_to(shutil.which(name))
        for name, text in {"id": "#!/bin/sh\necho 0\n", "apt-get": _APT_GET}.items():
            places = {"calls": calls, "mirror": tmp_path / "mirror", "lists": tmp_path / "lists"}
            (tools / name).write_text(text.format(**places))
            (tools / name).chmod(0o755)
        if mirror:
            (tmp_path / "mirror").touch()
        done = subprocess.run(
            [ROOT / "scripts/system-packages"], env={"PATH": str(tools)}, capture_output=True, text=True, timeout=120,
            check=True,
        )  # fmt: skip
        # What npm fetches is no Debian package; it is there or not.
        said = [line for line in done.stderr.splitlines() if "axe-core" not in line]
        return said, calls.read_text().splitlines()

    return run


def test_lists_of_packages_are_fetched_once_and_each_package_is_fetched_before_it_is_installed(packages):
    said, asked = packages(mirror=True)

    assert len([call for call in asked if call.endswith("update")]) == 1
    installed = [call.rpartition(" ")[2] for call in asked if "--no-download" in call]
    assert installed == [
        "softhsm2", "chromium", "prometheus", "strace", "slowhttptest", "default-jre-headless", "zsh", "fish"
    ]  # fmt: skip
    assert not any("skipped" in line for line in said)


def test_without_a_mirror_the_tests_are_skipped_one_sentence_a_package(packages):
    said, asked = packages(mirror=False)

    assert len([line for line in said if line.endswith("will be skipped.")]) == 8
    assert len([call for call in asked if call.endswith("update")]) == 1


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
    for name in ("kernel", "http", "_load"):
        (checkout.here / f"benchmarks/{name}.py").touch()

    checkout.run("scripts/bench", "http", "--json")
    checkout.run("scripts/bench", "--json")

    runs = [call for call in checkout.calls() if call.startswith("python")]
    assert runs == [f"python -m benchmarks.{name} --json" for name in ("http", "http", "kernel")]


def test_bench_refuses_an_unknown_area_and_names_those_there_are(checkout):
    (checkout.here / "benchmarks/kernel.py").touch()

    done = checkout.run("scripts/bench", "kernal")

    assert done.returncode == 2
    assert done.stderr == "scripts/bench: 'kernal' is no area; there are: kernel \n"


# --- scripts/release -------------------------------------------------------------------------------------------------

_VERSION_FILE = "src/penstock/__init__.py"


class ReleaseCheckout:
    """A small repository with the real `scripts/release`, the real towncrier and its settings."""

    def __init__(self, here):
        self.here = here
        for name in ("scripts/release", "pyproject.toml"):
            (here / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, here / name)
        self.write("scripts/environment", "#!/bin/sh\n").chmod(0o755)
        self.write(_VERSION_FILE, '"""The product."""\n\n__version__ = "0.1.0"\n')
        self.write("CHANGELOG.md", "# Changelog\n\n<!-- towncrier release notes start -->\n")
        self.write("changes/README.md", "# Changes\n")
        self.write("changes/+redrive.feature.md", "`dlq redrive` takes ids.\n")
        (here / ".venv").mkdir()
        (here / ".venv/bin").symlink_to(Path(sys.executable).parent)
        self.write(".gitignore", "/.venv\n")
        self.git("init", "--quiet", "--initial-branch", "main")
        self.commit()

    def write(self, name, text):
        path = self.here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def git(self, *words):
        author = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        return subprocess.run(
            ["git", *author, *words], cwd=self.here, capture_output=True, text=True, timeout=60, check=True
        ).stdout

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "a change")

    def release(self, *words):
        names = {f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environment = {**names, "PATH": "/usr/bin:/bin", "HOME": str(self.here)}
        command = [self.here / "scripts/release", *words]
        return subprocess.run(
            command, cwd="/", env=environment, capture_output=True, text=True, timeout=120, check=False
        )


@pytest.fixture
def release_checkout(tmp_path):
    return ReleaseCheckout(tmp_path / "checkout")


def test_release_only_shows_what_it_would_do(release_checkout):
    done = release_checkout.release("0.2.0")

    assert done.returncode == 0, done.stderr
    assert "`dlq redrive` takes ids." in done.stdout
    assert release_checkout.git("status", "--porcelain") == ""
    assert release_checkout.git("tag") == ""


def test_release_writes_the_changelog_sets_the_version_and_tags(release_checkout):
    done = release_checkout.release("0.2.0", "--really")

    assert done.returncode == 0, done.stderr
    assert "`dlq redrive` takes ids." in (release_checkout.here / "CHANGELOG.md").read_text()
    assert '__version__ = "0.2.0"' in (release_checkout.here / _VERSION_FILE).read_text()
    assert not (release_checkout.here / "changes/+redrive.feature.md").exists()
    assert release_checkout.git("log", "-1", "--format=%s %D").strip() == "release: 0.2.0 HEAD -> main, tag: v0.2.0"
    assert release_checkout.git("status", "--porcelain") == ""


@pytest.mark.parametrize("words", [(), ("2",), ("0.2.0", "--realy")])
def test_release_explains_its_arguments(release_checkout, words):
    done = release_checkout.release(*words)

    assert (done.returncode, done.stderr.partition(" ")[0]) == (2, "usage:")


def test_release_refuses_an_older_version_changes_and_a_tag_that_exists(release_checkout):
    assert "is older than 0.1.0" in release_checkout.release("0.0.9").stderr

    release_checkout.git("tag", "v0.2.0")
    assert "there is a tag v0.2.0 already" in release_checkout.release("0.2.0").stderr

    release_checkout.write("changes/+more.fix.md", "It works.\n")
    assert "the working tree has changes" in release_checkout.release("0.3.0").stderr


def test_release_without_a_change_is_refused(release_checkout):
    (release_checkout.here / "changes/+redrive.feature.md").unlink()
    release_checkout.commit()

    assert "there is nothing in changes/" in release_checkout.release("0.2.0", "--really").stderr


# --- hosted ----------------------------------------------------------------------------------------------------------


def test_hosted_ci_runs_what_a_person_runs():
    workflow = (ROOT / ".github/workflows/ci.yml").read_text()

    assert re.findall(r"run: (.+)", workflow) == [".ci/run"]
    assert "timeout-minutes:" in workflow
    assert "contents: read" in workflow


def test_pre_commit_fetches_nothing():
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()

    assert re.findall(r"repo: (.+)", hooks) == ["local"]
    assert set(re.findall(r"entry: (\S+)", hooks)) <= {".venv/bin/python", ".venv/bin/ruff"}
