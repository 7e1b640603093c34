"""An environment of its own for the clients of others, from `requirements-foreign.lock`; and the suites of others.

`python -m tests.foreign.environments` makes both beforehand: a minute or two, once for each state of the lock.

Every version is in the lock, so nothing is resolved here. A resolver without one tries version after version: awscli,
boto3 and aiobotocore each ask for a narrow range of botocore, and pip looks at eighty of aiobotocore's releases before
two agree. What is made lies in the user's cache, not in the checkout: it serves every checkout, and a clean one too.
One process makes it while others wait; one that was interrupted goes on from what is there. PENSTOCK_FOREIGN_DIR names
another place.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
LOCK = ROOT / "requirements-foreign.lock"
# The projects whose own tests run against a node; their source is that of the version in the lock.
SUITES = ("dramatiq", "kombu", "moto")
# The whole of making it, downloads included.
_MAKE_S = 1200
_RUN_S = 500


class ForeignEnvironment:
    """A directory with an interpreter that has every client, and with the sources of those whose tests are run."""

    def __init__(self, where: Path) -> None:
        """Take the directory of this state of the lock; it may not be there yet."""
        self.where = where
        self.python = where / "venv" / "bin" / "python"
        self._due = time.monotonic() + _MAKE_S

    def make(self) -> None:
        """Make what is missing, unless another process has; bounded in time."""
        self.where.mkdir(parents=True, exist_ok=True)
        with self._alone():
            if not (self.where / "installed").exists():
                self._install()
                (self.where / "installed").touch()
            for project in SUITES:
                if not self.source(project).exists():
                    self._download(project)

    def source(self, project: str) -> Path:
        """Return where a project's source distribution is unpacked."""
        return self.where / f"{project}-{versions()[project]}"

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with (self.where / "lock").open("w") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    self._left()
                    # lint: allow PK018 another process installs; it tells nobody when it is done
                    time.sleep(0.5)
            yield

    def _install(self) -> None:
        uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
        if not self.python.exists():
            self._do(sys.executable, "-m", "venv", str(self.where / "venv"))
        install = ["install", "--quiet", "--no-deps", "--require-hashes", "-r", str(LOCK)]
        if uv:
            self._do(uv, "pip", *install, "--python", str(self.python))
        else:
            self._do(str(self.python), "-m", "pip", "--disable-pip-version-check", *install)

    def _download(self, project: str) -> None:
        packed = self.where / "packed"
        pip = [str(self.python), "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        options = ["--no-binary", ":all:", "--no-build-isolation", "-d", str(packed)]
        self._do(*pip, *options, f"{project}=={versions()[project]}")
        with tarfile.open(next(packed.glob(f"{project}-*.tar.gz"))) as archive:
            _unpack(archive, packed)
        # Renamed when it is whole, so that what is there is all there.
        (packed / self.source(project).name).rename(self.source(project))

    def _left(self) -> float:
        left = self._due - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"{self.where} is not made after {_MAKE_S} s; run this again, it goes on from there.")
        return left

    def _do(self, *command: str) -> None:
        done = subprocess.run(command, timeout=self._left(), check=False, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def _unpack(archive: tarfile.TarFile, where: Path) -> None:
    """Unpack an archive, nothing of it outside; Pythons before 3.11.4 have no filter that sees to it."""
    if hasattr(tarfile, "data_filter"):
        archive.extractall(where, filter="data")
        return
    for member in archive.getmembers():
        inside = (where / member.name).resolve().is_relative_to(where.resolve())
        if not inside or not (member.isfile() or member.isdir()):
            raise ValueError(f"{member.name} is no file or folder inside of the archive.")
    archive.extractall(where)


@cache
def versions() -> dict[str, str]:
    """Return the version of each package in the lock."""
    return dict(re.findall(r"^([\w.-]+)==(\S+)", LOCK.read_text(), re.MULTILINE))


@cache
def environment() -> ForeignEnvironment:
    """Return the environment of this lock and this Python, made."""
    given = os.environ.get("PENSTOCK_FOREIGN_DIR")
    base = Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"
    state = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()[:12]
    found = ForeignEnvironment(base / f"foreign-{state}")
    found.make()
    return found


def run(program: str, *arguments: str, env: dict[str, str]) -> str:
    """Run a program of a user to its end and return what it printed; one that fails is shown whole."""
    done = subprocess.run(
        [environment().python, PROGRAMS / program, *arguments],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{PROGRAMS}", **env},
        cwd=PROGRAMS,
        capture_output=True,
        text=True,
        timeout=_RUN_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    sys.stdout.write(done.stdout)
    return done.stdout


def run_suite(project: str, *arguments: str, env: dict[str, str]) -> str:
    """Run tests of a project from its own source with pytest and return what was printed, whatever came of them."""
    done = subprocess.run(
        [
            environment().python,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-q",
            "--color=no",
            "-W",
            "ignore",
            *arguments,
        ],
        cwd=environment().source(project),
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{PROGRAMS}:{environment().source(project)}", **env},
        capture_output=True,
        text=True,
        timeout=_RUN_S,
        check=False,
    )
    sys.stdout.write(done.stdout[-200:])
    return done.stdout + done.stderr


if __name__ == "__main__":
    sys.stdout.write(f"{environment().where}\n")
