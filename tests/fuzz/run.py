"""Fuzz one target for a while: with Atheris where it is installed, else with the mutator that sees no coverage.

An input that breaks a promise is kept in the folder `build/fuzz`; once the fault is mended it belongs into the corpus.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.mutating import CORPUS, corpus_of, mutated

FOUND = Path("build/fuzz")


def main(arguments: list[str]) -> int:
    """Read the command line and fuzz."""
    names = sorted(path.name for path in CORPUS.iterdir())
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("target", choices=names)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 2**31), help="to repeat a run")
    parser.add_argument("--blind", action="store_true", help="without coverage, also where Atheris is installed")
    given = parser.parse_args(arguments)
    blind = given.blind or importlib.util.find_spec("atheris") is None
    how = "blind mutation (Atheris is not used)" if blind else "Atheris"
    _say(f"{given.target}: {given.seconds} s of {how}, seed {given.seed}")
    return (_blindly if blind else _guided)(given.target, given.seconds, given.seed)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _targets() -> dict[str, Callable[[bytes], None]]:
    found: dict[str, Callable[[bytes], None]] = importlib.import_module("tests.fuzz.targets").TARGETS
    return found


def _guided(name: str, seconds: int, seed: int) -> int:
    """Let Atheris look for inputs that reach new code; it ends the process itself."""
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["penstock"]):
        target = _targets()[name]
    FOUND.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as fresh:
        options = [f"-max_total_time={seconds}", f"-seed={seed}", f"-artifact_prefix={FOUND}/{name}-", "-max_len=16384"]
        atheris.Setup([sys.argv[0], *options, fresh, str(CORPUS / name)], target)
        atheris.Fuzz()
    return 0


def _blindly(name: str, seconds: int, seed: int) -> int:
    target, inputs, rng = _targets()[name], corpus_of(name), random.Random(seed)
    until, tried = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        data = mutated(rng, inputs)
        try:
            target(data)
        except BaseException:
            FOUND.mkdir(parents=True, exist_ok=True)
            (FOUND / f"{name}-{seed}-{tried}").write_bytes(data)
            _say(f"after {tried} inputs: {FOUND / f'{name}-{seed}-{tried}'}")
            raise
        tried += 1
    _say(f"{tried} inputs, nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
