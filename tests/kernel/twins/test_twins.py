"""Every named check passes on the real thing and fails on its planted bug: a check whose twin survives is a defect."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path

import pytest

from penstock.kernel.errors import PenstockError
from tests.kernel.twins.table import PLANTED, Planted

_ids = {"argvalues": PLANTED, "ids": str}
# How a promise shows that it is broken; a twin that fails by anything else is itself written wrong.
_BROKEN = (AssertionError, PenstockError, asyncio.CancelledError, pytest.fail.Exception)


@pytest.mark.parametrize("planted", **_ids)
def test_the_real_one_keeps_the_promise(planted: Planted) -> None:
    planted.check(planted.real)


@pytest.mark.parametrize("planted", **_ids)
@pytest.mark.filterwarnings("ignore")
def test_the_planted_bug_is_caught(planted: Planted) -> None:
    with pytest.raises(_BROKEN):
        planted.check(planted.twin)


def test_no_check_is_without_a_twin() -> None:
    modules = {planted.check.__module__ for planted in PLANTED}
    written = {path.stem for path in (Path(__file__).parents[1] / "checks").glob("*.py")}
    named = {name for module in modules for name in vars(import_module(module)) if name.startswith("check_")}

    assert {module.rpartition(".")[2] for module in modules} == written
    assert named == {planted.check.__name__ for planted in PLANTED}
