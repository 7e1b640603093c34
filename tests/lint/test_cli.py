"""The command checks what it is given, says what it found in three shapes, and exits by the result."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.lint import main
from penstock.lint.runner import ALL_RULES

ROOT = Path(__file__).parents[2]
BROKEN = "import asyncio\n\n\ndef f(step):\n    asyncio.create_task(step())\n"
WAIVED = "def f(loop, step):\n    loop.call_soon(step)  # lint: allow PK006 made of callbacks\n"


@pytest.fixture
def project(tmp_path):
    """Lay out a project with one clean, one broken and one waived file, and an allowance."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "clean.py").write_text("x = 1\n", "utf-8")
    (tmp_path / "src" / "broken.py").write_text(BROKEN, "utf-8")
    (tmp_path / "src" / "waived.py").write_text(WAIVED, "utf-8")
    (tmp_path / "src" / "supervisor.py").write_text(BROKEN, "utf-8")
    (tmp_path / "pyproject.toml").write_text(
        '[tool.penstock.lint]\npaths = ["src"]\n[[tool.penstock.lint.allow]]\n'
        'codes = ["PK005"]\npaths = ["src/supervisor.py"]\nreason = "it makes the tasks"\n',
        "utf-8",
    )
    return tmp_path


def test_findings_are_told_by_line_and_exit_one(project, capsys):
    status = main([str(project / "src")])
    lines = capsys.readouterr().out.splitlines()

    assert status == 1
    assert lines[0].startswith("src/broken.py:5:5: PK005 No task is made outside the supervisor: ")
    assert lines[-1] == "1 finding in 4 files (1 waived, 1 allowed by configuration)"


def test_clean_code_exits_zero(project, capsys):
    assert main([str(project / "src" / "clean.py")]) == 0
    assert capsys.readouterr().out.startswith("no findings in 1 files")


def test_without_paths_the_configured_ones_are_checked(project, capsys, monkeypatch):
    monkeypatch.chdir(project)

    assert main([]) == 1
    assert "in 4 files" in capsys.readouterr().out


def test_json_carries_findings_waivers_and_allowances(project, capsys):
    main([str(project / "src"), "--json"])
    report = json.loads(capsys.readouterr().out)

    assert [(f["path"], f["line"], f["code"]) for f in report["findings"]] == [("src/broken.py", 5, "PK005")]
    assert [(w["code"], w["reason"]) for w in report["waived"]] == [("PK006", "made of callbacks")]
    assert report["allowed"] == {"PK005": 1}
    assert report["files"] == 4


def test_statistics_count_each_rule(project, capsys):
    main([str(project / "src"), "--statistics"])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]

    assert ["PK005", "1", "0", "1", "stray-task"] in rows
    assert ["PK006", "0", "1", "0", "stray-callback"] in rows


def test_select_runs_only_the_named_rules(project, capsys):
    assert main([str(project / "src"), "--select", "PK001,PK006"]) == 0
    assert main([str(project / "src"), "--select", "PK005"]) == 1
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [["--select", "PK777"], ["--explain", "PK777"], ["--config", "missing.toml"], ["missing_directory"]]
)
def test_bad_use_exits_two_with_one_sentence(project, capsys, monkeypatch, arguments):
    monkeypatch.chdir(project)

    assert main(arguments) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_unknown_options_exit_two(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--wrong"])

    assert stopped.value.code == 2
    assert "--wrong" in capsys.readouterr().err


def test_explain_gives_the_page_of_a_rule_by_code_or_name(capsys):
    assert main(["--explain", "pk001"]) == 0
    by_code = capsys.readouterr().out
    main(["--explain", "lock-across-await"])

    assert by_code == capsys.readouterr().out
    assert "# before" in by_code
    assert "# after" in by_code


def test_explain_all_lists_every_rule(capsys):
    main(["--explain", "all"])
    text = capsys.readouterr().out

    assert [rule.code for rule in ALL_RULES if f"### {rule.code} " not in text] == []


def test_excluded_and_hidden_directories_are_left_out(project, capsys):
    for name in ("vendored", ".venv", "__pycache__"):
        (project / "src" / name).mkdir()
        (project / "src" / name / "broken.py").write_text(BROKEN, "utf-8")
    (project / "pyproject.toml").write_text('[tool.penstock.lint]\nexclude = ["src/vendored"]\n', "utf-8")
    main([str(project / "src"), "--json"])

    assert json.loads(capsys.readouterr().out)["files"] == 4


def test_a_file_given_twice_is_checked_once(project, capsys):
    broken = str(project / "src" / "broken.py")
    main([broken, broken, "--json"])

    assert json.loads(capsys.readouterr().out)["files"] == 1


def test_a_file_that_is_not_utf8_is_a_finding(project, capsys):
    (project / "src" / "clean.py").write_bytes(b"x = '\xff'\n")
    main([str(project / "src" / "clean.py"), "--json"])

    assert [f["code"] for f in json.loads(capsys.readouterr().out)["findings"]] == ["PK900"]


def test_a_file_too_deep_to_walk_is_a_finding(project, capsys):
    (project / "src" / "clean.py").write_text("x = " + "+".join(["1"] * 5000) + "\n", "utf-8")
    main([str(project / "src" / "clean.py"), "--json"])

    assert [f["code"] for f in json.loads(capsys.readouterr().out)["findings"]] == ["PK900"]


def test_it_runs_as_a_module_and_imports_nothing_else_of_penstock():
    probe = (
        "import sys, penstock.lint.__main__\n"
        "print([m for m in sys.modules if m.startswith('penstock.') and not m.startswith('penstock.lint')])"
    )
    done = subprocess.run([sys.executable, "-c", probe], cwd=ROOT / "src", capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_the_linter_keeps_its_own_rules(capsys):
    assert main([str(ROOT / "src" / "penstock" / "lint")]) == 0
    assert capsys.readouterr().out.startswith("no findings")
