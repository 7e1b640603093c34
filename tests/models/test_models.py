"""The TLA+ models hold, and TLC finds the fault in each planted twin. In CI a missing Java is a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.weave.tlc import check
from tests.models.kit import MODELS, needs_tlc


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
