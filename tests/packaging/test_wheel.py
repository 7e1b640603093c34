"""What `pip install .` leaves a user with: a wheel that holds the page, a command that works, and a node that runs."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.house.tree import ROOT

TIME_S = 120


def run(*command: str | Path, **more: object) -> subprocess.CompletedProcess[str]:
    options = {"capture_output": True, "text": True, "timeout": TIME_S, **more}
    done = subprocess.run([*map(str, command)], check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done  # type: ignore[no-any-return]


def build(kind: str, where: Path) -> Path:
    run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", where, cwd=ROOT)
    (built,) = where.iterdir()
    return built


def installer(python: Path) -> list[str]:
    """Name what can install into another environment without a network."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-index"]
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    return [uv, "pip", "install", "--python", str(python), "--offline"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel alone into a fresh environment that borrows our dependencies; return its bin folder."""
    home = tmp_path_factory.mktemp("fresh")
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    run(*installer(python), "--no-deps", wheel)
    # A path file inside a borrowed folder is not followed: our own editable penstock stays out.
    packages = home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin"


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    static = {path.name for path in (ROOT / "src/penstock/admin/static").iterdir()}

    assert {name.rpartition("/")[2] for name in names if "/admin/static/" in name} == static
    assert "penstock/py.typed" in names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"penstock"}
    assert not [name for name in names if name.endswith((".pyc", ".swp", ".orig"))]


def test_the_source_archive_holds_what_a_packager_needs(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    wanted = {"LICENSE", "Dockerfile", "deploy/penstock.service", "requirements.lock", "tests/conftest.py"}
    assert wanted | {"src/penstock/admin/static/page.html"} <= names
    assert not [name for name in names if name.startswith((".venv", ".git/", ".penstock"))]


def test_the_installed_command_is_the_wheels(installed: Path) -> None:
    where = run(installed / "python", "-c", "import penstock; print(penstock.__file__)", cwd="/").stdout

    assert Path(where).is_relative_to(installed.parent)
    assert run(installed / "penstock", "version", cwd="/").stdout.startswith("penstock ")


def test_the_installed_node_serves_its_page_and_ends_in_good_order(installed: Path, tmp_path: Path) -> None:
    command = [str(installed / "penstock"), "up", "--amnesia", "--ephemeral-ports", "--json"]
    node = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert node.stdout is not None
        line = node.stdout.readline()
        assert line, node.communicate(timeout=TIME_S)[1]
        connection = http.client.HTTPConnection("127.0.0.1", json.loads(line)["ports"]["admin"], timeout=60)
        connection.request("GET", "/")
        page = connection.getresponse().read().decode()
        assets = [part.partition('"')[0] for part in page.split('"/assets/')[1:]]
        statuses = []
        for name in assets:
            connection.request("GET", f"/assets/{name}")
            answer = connection.getresponse()
            statuses.append((answer.status, len(answer.read()) > 100))
        connection.close()
        os.kill(node.pid, signal.SIGTERM)
        _, errors = node.communicate(timeout=TIME_S)
    finally:
        node.kill()
        node.wait(TIME_S)

    assert len(statuses) >= 3
    assert set(statuses) == {(200, True)}
    assert node.returncode == 0, errors
    assert list(tmp_path.iterdir()) == []


def test_the_extras_a_user_may_name_are_there(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    metadata = next(archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
    extras = {line.split(": ")[1] for line in metadata.splitlines() if line.startswith("Provides-Extra: ")}

    assert {"otel", "pkcs11", "testing"} <= extras
    assert "Requires-Python: >=3.11" in metadata
