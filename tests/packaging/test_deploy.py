"""The Dockerfile and the systemd unit work: what they copy exists, what they run runs, and neither runs as root."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.config import Sources, load
from penstock.node.services import schema
from tests.acceptance.node_process import NodeProcess
from tests.house.tree import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
UNIT = (ROOT / "deploy/penstock.service").read_text()
DATA = "/var/lib/penstock/data"
_SET_MDWE = 65


def steps() -> list[tuple[str, str]]:
    """Split the Dockerfile into instructions, with continued lines joined and comments left out."""
    text = re.sub(r"(?m)^#.*\n", "", DOCKERFILE).replace("\\\n", " ")
    return [
        (word, " ".join(rest.split())) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)
    ]


def of(word: str) -> list[str]:
    return [rest for name, rest in steps() if name == word]


def settings() -> dict[str, list[str]]:
    """Read the unit; a key may come more than once."""
    found: dict[str, list[str]] = {}
    for key, value in re.findall(r"(?m)^(\w+)=(.*)$", UNIT):
        found.setdefault(key, []).append(value)
    return found


def test_every_way_to_run_a_node_keeps_its_data_in_one_place() -> None:
    pages = [
        (ROOT / name).read_text()
        for name in (
            "Dockerfile",
            "deploy/penstock.service",
            "deploy/compose.yaml",
            "docs/deploy.md",
            "docs/howto/back-up-and-restore.md",
        )
    ]
    named = [re.findall(r"--data-dir[\s\",]+(/var/lib/[\w/]+)", page) for page in pages]

    assert all(set(places) <= {DATA} for places in named), named
    assert all(named[:4]), named


# --- the image


def test_everything_the_image_copies_exists_and_is_let_through() -> None:
    sources = [word for rest in of("COPY") if "--from" not in rest for word in rest.split()[:-1]]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()

    assert sources
    assert [name for name in sources if not (ROOT / name).exists()] == []
    assert [name for name in sources if f"!{name}" not in ignored] == []
    assert "*" in ignored


def test_the_image_installs_by_hash_and_then_the_package_alone() -> None:
    installs = [rest for rest in of("RUN") if "pip install" in rest]

    assert len(installs) == 2
    assert "--require-hashes -r requirements.lock" in installs[0]
    assert "--no-deps ." in installs[1]
    assert "hatchling==" in (ROOT / "requirements.lock").read_text()  # what --no-build-isolation builds with


def test_the_image_names_no_registry_and_does_not_run_as_root() -> None:
    base = of("ARG")[0].partition("=")[2]

    assert of("FROM") == ["${BASE} AS build", "${BASE}"]
    assert "/" not in base
    assert [name for name, _ in steps()].index("USER") > [name for name, _ in steps()].index("RUN")
    assert of("USER") == ["penstock"]
    assert of("VOLUME") == ["/var/lib/penstock"]
    assert of("STOPSIGNAL") == ["SIGTERM"]


def test_the_image_exposes_the_ports_the_configuration_knows() -> None:
    node = load(schema(), Sources())
    ports = {int(word) for word in of("EXPOSE")[0].split()}
    known = {
        node.address(f"{table.name}.bind_addr").port
        for table in schema().tables
        if f"{table.name}.bind_addr" in schema().keys
    }
    known -= {5310}  # the echo service is for trying things out

    assert known <= ports


def test_what_the_image_runs_starts_is_healthy_and_ends_with_0(tmp_path: Path) -> None:
    (entry, command), health = (json.loads(of(word)[0]) for word in ("ENTRYPOINT", "CMD")), of("HEALTHCHECK")[0]
    asked = json.loads(health.partition("CMD ")[2])
    assert entry == asked[:1] == ["penstock"]

    def here(words: list[str]) -> list[str]:
        return [str(tmp_path / "data") if word == DATA else word for word in words]

    program = str(Path(sys.executable).with_name("penstock"))
    with NodeProcess(data_dir=tmp_path / "data", command=tuple(command[:1])) as node:
        assert here(command)[1:] == ["--data-dir", node.ready["data_dir"]]
        healthy = subprocess.run([program, *here(asked)[1:]], capture_output=True, timeout=60, check=False)
        node.signal(signal.SIGTERM)
        code, _, errors = node.wait()
    gone = subprocess.run([program, *here(asked)[1:]], capture_output=True, timeout=60, check=False)

    assert healthy.returncode == 0, healthy.stderr
    assert code == 0, errors
    assert gone.returncode == 1


# --- the unit


def test_the_unit_is_confined() -> None:
    wanted = {
        "DynamicUser": "yes", "StateDirectory": "penstock", "ProtectSystem": "strict", "ProtectHome": "yes",
        "NoNewPrivileges": "yes",
        "CapabilityBoundingSet": "", "PrivateTmp": "yes", "PrivateDevices": "yes", "MemoryDenyWriteExecute": "yes",
        "KillSignal": "SIGTERM", "LimitCORE": "0",
    }  # fmt: skip

    assert {key: settings()[key][-1] for key in wanted} == wanted
    assert "User" not in settings()


def test_the_unit_waits_longer_than_any_drain_and_does_not_retry_a_bad_configuration() -> None:
    drain_s_max = float(str(schema().keys["node.drain_deadline"].high))

    assert int(settings()["TimeoutStopSec"][0]) > drain_s_max
    assert settings()["RestartPreventExitStatus"] == ["2"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_finds_no_fault_and_little_exposure(tmp_path: Path) -> None:
    unit = tmp_path / "penstock.service"
    unit.write_text(UNIT.replace("/opt/penstock/bin/penstock", str(Path(sys.executable).with_name("penstock"))))
    verify = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=60, check=False
    )
    exposure = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", unit],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert verify.returncode == 0, verify.stderr
    assert "penstock.service" not in verify.stderr
    assert exposure.returncode == 0, exposure.stdout


def test_the_node_lives_with_memory_that_is_never_writable_and_executable() -> None:
    """`MemoryDenyWriteExecute` by the system's own switch; without it the unit's line has no effect either."""
    code = (
        f"import ctypes, os, sys; print(ctypes.CDLL(None).prctl({_SET_MDWE}, 1, 0, 0, 0), flush=True); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    program = str(Path(sys.executable).with_name("penstock"))
    command = [sys.executable, "-c", code, program, "up", "--amnesia", "--ephemeral-ports", "--json"]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert node.stdout is not None
        switched, ready = node.stdout.readline(), node.stdout.readline()
        os.kill(node.pid, signal.SIGTERM)
        _, errors = node.communicate(timeout=60)
    finally:
        node.kill()
        node.wait(60)
    if switched.strip() != "0":
        pytest.skip(f"this kernel has no such switch: {os.strerror(ctypes.get_errno())}")

    assert json.loads(ready)["event"] == "ready"
    assert node.returncode == 0, errors


@pytest.mark.parametrize("abstract", [False, True])
def test_a_service_manager_hears_when_the_node_is_ready_and_when_it_stops(tmp_path: Path, abstract: bool) -> None:
    place = f"@penstock-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{place[1:]}" if abstract else place)
        manager.settimeout(80)
        with NodeProcess(env={**os.environ, "NOTIFY_SOCKET": place}) as node:
            ready = manager.recv(100)
            node.signal(signal.SIGTERM)
            stopping = manager.recv(100)
            code = node.wait()[0]

    assert (ready, stopping, code) == (b"READY=1", b"STOPPING=1", 0)


def test_a_manager_that_does_not_listen_changes_nothing(tmp_path: Path) -> None:
    with NodeProcess(env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "nobody")}) as node:
        node.signal(signal.SIGTERM)

        assert node.wait()[0] == 0
