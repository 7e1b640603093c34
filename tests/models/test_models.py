"""The TLA+ models hold, and TLC finds the fault in each planted twin. In CI a missing Java is a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.weave.tlc import check
from tests.models.kit import MODELS, needs_tlc
from tests.models.table import WORLDS


@needs_tlc
@pytest.mark.parametrize("config", sorted(MODELS.glob("*.cfg")), ids=lambda path: path.stem)
def test_a_model_holds_and_its_planted_twin_does_not(config: Path) -> None:
    checked = check(config)

    if "_planted" in config.stem:
        assert checked.violated, checked.told[-2000:]
    else:
        assert checked.holds, checked.told[-2000:]


def test_every_model_has_a_configuration_that_holds_and_a_planted_one() -> None:
    names = {path.stem for path in MODELS.glob("*.cfg")}
    models = {path.stem for path in MODELS.glob("*.tla") if not path.stem.endswith("MC")}

    assert models == {name.partition("_")[0] for name in names}
    assert all(f"{model}_planted" in names and model in names for model in models)


@needs_tlc
def test_the_table_tells_what_was_explored_and_that_nothing_lay_outside() -> None:
    world = next(world for world in WORLDS if (world.config, world.mode) == ("Gate", "fifo"))
    cells = [cell.strip() for cell in world.row().split("|")]

    assert cells[1:3] == ["`Gate`", "148, 337"]
    assert cells[6].endswith(", 0")
    assert "Leave" in cells[8]
