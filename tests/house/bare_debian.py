"""A bare Debian in a folder: python3 without venv and ensurepip, an apt-get with empty package lists, and no uv."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.house.tree import ROOT

_TOOLS = ("awk", "bash", "cat", "cksum", "dirname", "env", "find", "grep", "rm", "sh", "touch", "true")

# Hides the modules by standing before the standard library.
_PYTHON = '#!/bin/sh\nPYTHONPATH={here}/hidden exec {python} "$@"\n'

# Like the real one: installs nothing before its lists are fetched, and then gives python3 its missing modules.
_APT_GET = """#!/bin/sh
echo "$*" >>{here}/apt.log
case $1 in
    update) touch {here}/lists ;;
    install) [ -f {here}/lists ] && [ "$4" = python3-venv ] && rm -f {here}/hidden/*.py ;;
esac
"""

# Like the real one: -n never asks, and only those who may become root.
_SUDO = '#!/bin/sh\necho "$*" >>{here}/sudo.log\nshift && exec "$@"\n'

_PYPROJECT = """[project]
name = "penstock"
version = "0"
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""

# The smallest backend that makes an editable wheel, so that the world needs no network.
_BACKEND = """
import pathlib, zipfile
def build_editable(folder, config_settings=None, metadata_directory=None):
    name = "penstock-0-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(folder, name), "w") as wheel:
        wheel.writestr("penstock.pth", str(pathlib.Path.cwd() / "src"))
        wheel.writestr("penstock-0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: penstock\\nVersion: 0\\n")
        wheel.writestr("penstock-0.dist-info/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        wheel.writestr("penstock-0.dist-info/RECORD", "")
    return name
"""


class BareDebian:
    """A folder with a PATH of its own and a checkout that holds only what `scripts/environment` reads."""

    def __init__(self, here: Path, *, uid: int = 0, apt: bool = True, sudo: bool = False) -> None:
        self.here = here
        self.checkout = here / "checkout"
        self._bin = here / "bin"
        self._make_checkout()
        self._make_tools(uid)
        self._make_python()
        if apt:
            self.command("apt-get", _APT_GET)
        if sudo:
            self.command("sudo", _SUDO)

    def _make_checkout(self) -> None:
        (self.checkout / "scripts").mkdir(parents=True)
        (self.checkout / "src/penstock").mkdir(parents=True)
        (self.checkout / "src/penstock/__init__.py").touch()
        shutil.copy(ROOT / "scripts/environment", self.checkout / "scripts")
        (self.checkout / "requirements.lock").write_text("# nothing\n")
        (self.checkout / "pyproject.toml").write_text(_PYPROJECT)
        (self.checkout / "backend.py").write_text(_BACKEND)

    def _make_tools(self, uid: int) -> None:
        self._bin.mkdir()
        for tool in _TOOLS:
            (self._bin / tool).symlink_to(shutil.which(tool) or f"/usr/bin/{tool}")
        self.command("id", f"#!/bin/sh\necho {uid}\n")

    def _make_python(self) -> None:
        (self.here / "hidden").mkdir()
        for module in ("venv", "ensurepip"):
            (self.here / "hidden" / f"{module}.py").write_text("raise ModuleNotFoundError(__name__)\n")
        self.command("python3", _PYTHON.replace("{python}", os.path.realpath(sys.executable)))

    def command(self, name: str, script: str) -> None:
        """Put a command on the path."""
        path = self._bin / name
        path.write_text(script.replace("{here}", str(self.here)))
        path.chmod(0o755)

    def start(self) -> subprocess.Popen[str]:
        """Begin `scripts/environment`."""
        command = [self.checkout / "scripts/environment"]
        return subprocess.Popen(command, env={"PATH": str(self._bin)}, stderr=subprocess.PIPE, text=True)

    def run(self) -> tuple[int, str]:
        """Run `scripts/environment` and give its exit code and what it said."""
        process = self.start()
        said = process.communicate(timeout=300)[1]
        return process.returncode, said

    def log(self, name: str) -> list[str]:
        """Give what a command was asked, one call a line."""
        path = self.here / f"{name}.log"
        return path.read_text().splitlines() if path.exists() else []
