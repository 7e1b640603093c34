"""An environment of its own for the clients of others: made once, by pip, below the directory of pytest's cache.

`python -m tests.foreign.environments` makes it beforehand, which takes minutes; PENSTOCK_FOREIGN_PYTHON names another.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
_WHERE = ROOT / ".pytest_cache" / "foreign"
_CLIENTS = ("boto3", "aiobotocore", "awscli", "celery[sqs]", "dramatiq", "moto[server]", "pytest", "freezegun")
_INSTALL_S = 900
_RUN_S = 400


@cache
def python() -> Path:
    """Return the interpreter of an environment with every client, and with penstock itself from this checkout."""
    given = os.environ.get("PENSTOCK_FOREIGN_PYTHON")
    if given:
        return Path(given)
    found = _WHERE / "bin" / "python"
    stamp = _WHERE / ".made"
    wanted = "\n".join(_CLIENTS)
    if not stamp.exists() or stamp.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", _WHERE], check=True, timeout=_INSTALL_S)
        pip = [str(found), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *_CLIENTS, str(ROOT)], check=True, timeout=_INSTALL_S, capture_output=True)
        stamp.write_text(wanted)
    return found


def run(program: str, *arguments: str, env: dict[str, str]) -> str:
    """Run a program of a user to its end and return what it printed; one that fails is shown whole."""
    done = subprocess.run(
        [python(), PROGRAMS / program, *arguments],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{PROGRAMS}", **env},
        cwd=PROGRAMS,
        capture_output=True,
        text=True,
        timeout=_RUN_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@cache
def moto_source() -> Path:
    """Return moto's source with its own tests, of the version that is installed; downloaded, never kept with ours."""
    version = subprocess.run(
        [python(), "-c", "import moto; print(moto.__version__)"], capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()
    folder = _WHERE / f"moto-{version}"
    if not folder.exists():
        pip = [
            str(python()),
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--no-binary",
            ":all:",
            "--no-build-isolation",
        ]
        subprocess.run([*pip, f"moto=={version}", "-d", _WHERE], check=True, timeout=_INSTALL_S, capture_output=True)
        with tarfile.open(next(_WHERE.glob(f"moto-{version}.tar.gz"))) as packed:
            packed.extractall(_WHERE, filter="data")
    return folder


if __name__ == "__main__":
    python()
    moto_source()
