"""What others can read, a list of processes or a journal, holds nothing that lets them in."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.acceptance.node_process import STOP_S, penstock


@pytest.mark.parametrize("command", [("up",), ("config", "show")], ids=" ".join)
@pytest.mark.parametrize("key", ["passport.kms.sealing_secret", "passport.kms.pkcs11.pin"])
def test_secret_on_the_command_line_is_refused_with_the_ways_to_give_it(command: tuple[str, ...], key: str) -> None:
    refused = penstock(*command, "--set", f"{key}=not-a-real-secret")

    assert refused.returncode == 2
    assert f"{key}_file=PATH" in refused.stderr
    assert f"PENSTOCK_{key.upper().replace('.', '__')}" in refused.stderr
    assert "not-a-real-secret" not in refused.stderr + refused.stdout
    assert "Traceback" not in refused.stderr


def test_link_that_signs_in_is_not_written_where_there_is_no_terminal() -> None:
    command = [sys.executable, "-m", "penstock.cli", "up", "--amnesia", "--ephemeral-ports"]
    off = [word for name in ("omnigate", "storage", "dht", "interop") for word in ("--set", f"node.{name}=false")]
    with subprocess.Popen([*command, *off], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as node:
        assert node.stdout is not None
        shown = ""
        for line in node.stdout:
            shown += line
            if "operator's page" in line:
                break
        node.terminate()
        rest, _ = node.communicate(timeout=STOP_S)

    assert "operator's page (sign in with the operator token): http://127.0.0.1:" in shown
    assert "#once=" not in shown + rest
