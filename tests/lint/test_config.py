"""Settings are read strictly: every fault is named, and allowances need a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.lint import config
from penstock.lint.config import (
    BadConfig,
    LintSettings,
    Patterns,
    covers,
    find_pyproject,
    load,
)
from penstock.lint.runner import CODES
from tests.lint.sources import codes

GOOD = """
[tool.penstock.lint]
paths = ["src"]
exclude = ["src/vendored"]
ignore = ["PK015"]
io-calls = ["*.sign"]
bounded-calls = ["*.close"]
blocking-calls = ["slow.*"]
deadlines = ["*.limited"]

[[tool.penstock.lint.allow]]
codes = ["PK005"]
paths = ["src/supervisor.py"]
reason = "the one place that makes tasks"
"""


def loaded(tmp_path, text: str) -> LintSettings:
    path = tmp_path / "pyproject.toml"
    path.write_text(text, "utf-8")
    return load(path, CODES)


def test_every_key_is_read(tmp_path):
    settings = loaded(tmp_path, GOOD)

    assert settings.root == tmp_path
    assert settings.paths == ("src",)
    assert settings.exclude == ("src/vendored",)
    assert not settings.is_selected("PK015")
    assert settings.is_bounded_call("?self._writer.close")
    assert settings.is_allowed("PK005", "src/supervisor.py")


def test_a_project_without_a_table_has_the_defaults(tmp_path):
    settings = loaded(tmp_path, "[project]\nname = 'x'\n")

    assert settings.paths == (".",)
    assert settings.is_selected("PK001")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[tool.penstock.lint]\ncolour = 1", "unknown key 'colour'"),
        ("[tool.penstock.lint]\npaths = 'src'", "paths must be a list of strings"),
        ("[tool.penstock.lint]\nselect = ['XX1']", "unknown rule 'XX1'"),
        ("[tool.penstock.lint]\nallow = 1", "allow must be an array of tables"),
        ("[tool.penstock.lint]\nallow = [1]", "exactly codes, paths and reason"),
        ("[[tool.penstock.lint.allow]]\ncodes = ['PK005']\npaths = ['x']", "exactly codes, paths and reason"),
        ("[[tool.penstock.lint.allow]]\ncodes = ['PK005']\npaths = ['x']\nreason = ' '", "reason must not be empty"),
        ("[[tool.penstock.lint.allow]]\ncodes = ['PK777']\npaths = ['x']\nreason = 'y'", "unknown rule 'PK777'"),
        ("[[tool.penstock.lint.allow]]\ncodes = 'PK005'\npaths = ['x']\nreason = 'y'", "allow.codes must be a list"),
        ("[tool]\npenstock = 3", "penstock must be a table"),
        ("not toml", "pyproject.toml"),
    ],
)
def test_a_fault_is_refused_by_name(tmp_path, text, fault):
    with pytest.raises(BadConfig, match=fault.replace("[", r"\[")):
        loaded(tmp_path, text)


def test_all_faults_are_told_in_one_go(tmp_path):
    with pytest.raises(BadConfig, match=r"unknown key 'a'.*unknown key 'b'.*paths must be"):
        loaded(tmp_path, "[tool.penstock.lint]\na = 1\nb = 2\npaths = 3")


def test_the_nearest_pyproject_is_found(tmp_path):
    (tmp_path / "pyproject.toml").write_text("", "utf-8")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)

    assert find_pyproject(below) == tmp_path / "pyproject.toml"


@pytest.mark.parametrize(
    ("glob", "path", "expected"),
    [
        ("src", "src/a.py", True),
        ("src/", "src/a/b.py", True),
        ("src/a.py", "src/a.py", True),
        ("src/*/engines/*", "src/mailbox/engines/disk.py", True),
        ("src", "srcs/a.py", False),
        ("a.py", "src/a.py", False),
    ],
)
def test_a_pattern_covers_files_and_whole_directories(glob, path, expected):
    assert covers((glob,), path) is expected


@pytest.mark.parametrize(
    ("glob", "name", "expected"),
    [
        ("*.sign", "?kms.sign", True),
        ("*.sign", "?kms.signed", False),
        ("slow.*", "slow.call", True),
        ("a.b", "a.b", True),
    ],
)
def test_a_pattern_covers_the_whole_dotted_name(glob, name, expected):
    assert Patterns((glob,)).match(name) is expected


def test_declared_io_calls_need_a_deadline():
    source = "async def f(kms):\n    await kms.sign(b'x')\n"

    assert codes(source) == []
    assert codes(source, LintSettings(io_calls=Patterns(("*.sign",)))) == ["PK009"]


def test_declared_bounded_calls_need_none():
    source = "async def f(w):\n    try:\n        await w.work()\n    finally:\n        await w.close()\n"

    assert codes(source) == ["PK014"]
    assert codes(source, LintSettings(bounded_calls=Patterns(("*.close",)))) == []


def test_declared_blocking_calls_are_found():
    source = "import slow\nasync def f():\n    slow.call()\n"

    assert codes(source) == []
    assert codes(source, LintSettings(blocking_calls=Patterns(("slow.*",)))) == ["PK008"]


def test_every_setting_stands_in_the_docs():
    page = (Path(__file__).parents[2] / "docs" / "lint.md").read_text("utf-8")

    assert [key for key in (*config._LISTS, "allow") if f"`{key}`" not in page] == []


def test_declared_deadlines_count_as_deadlines():
    source = "async def f(kit, writer):\n    async with kit.limited(3):\n        await writer.drain()\n"

    assert codes(source) == ["PK009"]
    assert codes(source, LintSettings(deadlines=Patterns(("*.limited",)))) == []


def test_an_allowance_holds_for_its_files_only(tmp_path):
    settings = loaded(tmp_path, GOOD)
    source = "import asyncio\nasyncio.create_task(f())\n"

    assert codes(source, settings, "src/supervisor.py") == []
    assert codes(source, settings, "src/other.py") == ["PK005"]


def test_a_prefix_selects_a_family():
    settings = LintSettings(select=("PK00",), ignore=("PK003",))

    assert [code for code in ("PK001", "PK003", "PK011") if settings.is_selected(code)] == ["PK001"]


VIRTUAL = LintSettings(real_time_marks=("real_loop",))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("async def test_x():\n    await asyncio.sleep(60)\n", []),
        ("def test_x():\n    time.sleep(1)\n", ["PK018"]),
        ("@pytest.mark.real_loop\nasync def test_x():\n    await asyncio.sleep(60)\n", ["PK018"]),
        ("@pytest.mark.real_loop(watchdog_s=5)\nasync def test_x():\n    await asyncio.sleep(60)\n", ["PK018"]),
        (
            "@pytest.mark.real_loop\nclass TestX:\n    async def test_x(self):\n        await asyncio.sleep(60)\n",
            ["PK018"],
        ),
        ("@mark.real_loop\ndef test_x():\n    async def f():\n        await asyncio.sleep(60)\n", ["PK018"]),
        ("pytestmark = pytest.mark.real_loop\nasync def test_x():\n    await asyncio.sleep(60)\n", ["PK018"]),
        ("pytestmark = [pytest.mark.real_loop()]\nasync def test_x():\n    await asyncio.sleep(60)\n", ["PK018"]),
        ("pytestmark = pytest.mark.full\nasync def test_x():\n    await asyncio.sleep(60)\n", []),
    ],
)
def test_on_virtual_time_only_real_sleeps_are_told_of(source, expected):
    imports = "import asyncio, time, pytest\nfrom pytest import mark\n"

    assert codes(imports + source, VIRTUAL, "tests/test_x.py") == expected
