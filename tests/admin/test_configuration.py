"""The configuration as the operator sees it: what is in force and where it comes from, without a secret."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.node_process import NodeProcess, penstock

SECRETS = ("not-a-real-webhook-secret", "not-a-real-pin", "not-a-real-password")
FILE = """
[http]
read_timeout = "6s"
[interop]
public_url = "https://ada:not-a-real-password@hooks.example"
[interop.providers.github]
secrets = ["env:HOOK_SECRET"]
"""


class Configured:
    """A node whose settings come from everywhere, and its file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "penstock.toml"
        self.file.write_text(FILE)
        env = {
            **os.environ,
            "HOOK_SECRET": SECRETS[0],
            "PENSTOCK_PASSPORT__KMS__PKCS11__PIN": SECRETS[1],
            "PENSTOCK_MAILBOX__IDLE_TIMEOUT": "50s",
        }
        options = ("--config", str(self.file), "--set", "node.echo=true")
        self.node = NodeProcess(*options, data_dir=folder / "data", env=env)

    def told(self, service: str = "admin") -> dict[str, Any]:
        answer = self.node.ask(service, "GET", "/v1/node/config", token=True)
        assert answer.status == 200, answer.body
        assert [secret for secret in SECRETS if secret.encode() in answer.body] == []
        return dict(answer.json())

    def rows(self) -> dict[str, dict[str, Any]]:
        return {row["key"]: row for row in self.told()["settings"]}

    def reload(self, more: str) -> int:
        self.file.write_text(FILE + more)
        return self.node.ask("admin", "POST", "/v1/node/reload", token=True).status


@pytest.fixture
def configured(tmp_path: Path) -> Iterator[Configured]:
    made = Configured(tmp_path)
    with made.node:
        yield made


def test_every_setting_says_its_place_and_no_secret_is_told(configured: Configured) -> None:
    rows = configured.rows()

    def place(key: str) -> tuple[object, ...]:
        return tuple(rows[key][name] for name in ("value", "origin", "source", "changed", "follows"))

    assert place("http.read_timeout") == ("6s", f"{configured.file}:3", "file", True, "")
    assert place("storage.read_timeout")[1:] == (
        f"{configured.file}:3 (http.read_timeout)", "file", True, "http.read_timeout"
    )  # fmt: skip
    assert place("mailbox.idle_timeout") == ("50s", "PENSTOCK_MAILBOX__IDLE_TIMEOUT", "env", True, "")
    assert place("node.ephemeral_ports") == (True, "--ephemeral-ports", "flag", True, "")
    assert place("node.echo") == (True, "--set", "set", True, "")
    assert place("storage.idle_timeout") == ("60s", "default", "default", False, "")
    assert place("passport.bind_addr")[1:] == (
        "computed from node.ephemeral_ports", "default", True, "node.ephemeral_ports"
    )  # fmt: skip
    assert place("passport.kms.pkcs11.pin")[0] == "(redacted)"
    assert rows["passport.kms.pkcs11.pin"]["changed"]
    assert rows["interop.providers"]["value"]["github"]["secrets"] == "(redacted)"
    assert rows["interop.public_url"]["value"] == "https://ada:(redacted)@hooks.example"
    assert (rows["node.echo"]["apply"], rows["http.read_timeout"]["apply"]) == ("restart", "live")


def test_the_page_the_gateway_and_the_command_tell_the_same(configured: Configured) -> None:
    data_dir = configured.node.ready["data_dir"]
    shown = penstock("config", "show", "--running", "--json", "--data-dir", data_dir)
    changed = penstock("config", "show", "--running", "--changed", "--data-dir", data_dir)
    told = configured.told()

    assert told == configured.told("omnigate")
    assert json.loads(shown.stdout) == told["settings"]
    assert "http.read_timeout " in changed.stdout
    assert "storage.idle_timeout" not in changed.stdout
    mixed = penstock("config", "show", "--running", "--set", "node.echo=true", "--data-dir", data_dir)
    assert (mixed.returncode, "Give one kind." in mixed.stderr) == (2, True)


def test_only_the_operator_is_told(configured: Configured) -> None:
    node = configured.node
    asked = {"subject_ref": "ada", "audience": ["*"], "ttl_s": 60, "caveats": ["op=admin,recv"]}
    narrow = node.ask("passport", "POST", "/v1/passport/issue", asked, token=True).json()["token"]
    connection = node.connect("omnigate")
    connection.request("GET", "/v1/node/config", headers={"Authorization": f"Bearer {narrow}"})
    refused = connection.getresponse().status
    connection.close()
    described = node.ask("admin", "GET", "/openapi.json", token=True).json()

    assert node.ask("admin", "GET", "/v1/node/config").status == 401
    assert refused in (401, 403)
    said = described["paths"]["/v1/node/config"]["get"]["responses"]["2XX"]["content"]["application/json"]["schema"]
    assert said == {"$ref": "#/components/schemas/ConfigurationReport"}


def test_what_a_reload_left_undone_is_told_until_one_succeeds(configured: Configured) -> None:
    assert configured.reload('[mailbox]\nidle_timeout = "55s"\n[echo]\nworkers = 3\n') == 200
    held = configured.told()
    assert configured.reload("[echo]\nworkers = 99\n") == 400
    refused = configured.told()
    told = penstock("config", "show", "--running", "--changed", "--data-dir", configured.node.ready["data_dir"])
    assert configured.reload("") == 200
    well = configured.told()

    [change] = held["held"]
    assert (change["key"], change["new"], held["faults"]) == ("echo.workers", "3", [])
    assert "echo.workers = 99" in refused["faults"][0]
    assert refused["held"] == held["held"]
    assert "echo.workers: 2 -> 3 waits for a restart" in told.stderr
    assert "the last reload was refused: " in told.stderr
    assert (well["held"], well["failed"], well["faults"]) == ([], [], [])
