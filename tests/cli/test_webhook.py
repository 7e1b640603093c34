"""`penstock webhook sign`: what it prints is accepted; what cannot be signed is told in a sentence."""

from __future__ import annotations

import os
import shlex
from itertools import pairwise

import pytest

from penstock.cli import main
from penstock.kernel.clock import SYSTEM
from penstock.services.interop.audit import AuditBook, BridgeAct
from penstock.services.interop.providers.kinds import make_verifier
from penstock.services.interop.providers.setup import WebhookSetup
from penstock.services.interop.providers.verdict import WebhookRequest, verify
from tests.acceptance.node_process import NodeProcess, penstock
from tests.net.server.certificates import make_certificate

GITHUB = ("--set", "interop.providers.github.secrets=env:HOOK_SECRET")


@pytest.fixture
def body(tmp_path, monkeypatch):
    monkeypatch.setenv("HOOK_SECRET", "fake-secret")
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "body.json"
    file.write_bytes(b'{"a":1}')
    return file


def test_printed_line_is_accepted_by_the_endpoint(body, capsys):
    code = main(["webhook", "sign", "github", str(body), *GITHUB])
    words = shlex.split(capsys.readouterr().out)
    fields = [word.partition(": ") for flag, word in pairwise(words) if flag == "-H"]
    request = WebhookRequest([(name.encode(), value.encode()) for name, _, value in fields], b'{"a":1}')

    assert code == 0
    assert words[-1] == "http://127.0.0.1:5309/webhooks/github"
    assert verify(make_verifier("github", WebhookSetup(secrets=(b"fake-secret",))), request, SYSTEM.wall()).accepted


def test_public_url_and_a_given_one_are_used(body, capsys):
    main(["webhook", "sign", "github", str(body), *GITHUB, "--set", "interop.public_url=https://hooks.example.org"])
    main(["webhook", "sign", "github", str(body), *GITHUB, "--url", "http://localhost:1/"])

    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == [
        "https://hooks.example.org/webhooks/github",
        "http://localhost:1/webhooks/github",
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["sign", "nobody", "body.json", *GITHUB], "There is no endpoint 'nobody'"),
        (["sign", "github", "missing.json", *GITHUB], "missing.json cannot be read: No such file"),
        (
            ["sign", "discord", "body.json", "--set", "interop.providers.discord.secrets=env:DISCORD"],
            "Only Discord can sign",
        ),
        (["sign", "github", "body.json", *GITHUB, "--send", "--url", "http://127.0.0.1:1"], "nothing answers at"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(body, capsys, monkeypatch, arguments, told):
    monkeypatch.setenv("DISCORD", "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")

    code = main(["webhook", *arguments])
    out = capsys.readouterr()

    assert code == 1
    assert told in out.err
    assert "fake-secret" not in out.err + out.out


def test_settings_that_cannot_work_are_told_at_start(body, capsys):
    code = main(["webhook", "sign", "a", str(body), "--set", "interop.providers.a.secrets=env:HOOK_SECRET"])

    assert code == 2
    assert "There is no kind 'a'" in capsys.readouterr().err


def test_audit_of_the_bridge_is_walked(tmp_path, capsys):
    file, broken = tmp_path / "audit.log", tmp_path / "broken.log"
    lines = AuditBook().write([BridgeAct("webhook", n, "allow") for n in range(3)], 0, 1)
    file.write_bytes(lines)
    broken.write_bytes(lines.replace(b"allow", b"deny", 1))
    command = ["audit", "verify", "--data-dir", str(tmp_path), "--interop"]

    codes = [main([*command, str(path)]) for path in (file, broken, tmp_path / "missing.log")]
    out = capsys.readouterr()

    assert codes == [0, 1, 1]
    assert out.out.startswith("3 records, head ")
    assert "Record 1 of the audit does not follow" in out.err


@pytest.fixture
def bridge(tmp_path_factory):
    """A node whose endpoint has a secret that nobody else knows."""
    here = tmp_path_factory.mktemp("bridge")
    env = {**os.environ, "HOOK_SECRET": "fake-secret"}
    with NodeProcess(*GITHUB, "--set", "interop.public_url=https://hooks.example.org", data_dir=here, env=env) as node:
        yield node


def test_the_running_node_signs_and_is_sent_to(bridge, tmp_path, monkeypatch):
    monkeypatch.delenv("HOOK_SECRET", raising=False)
    (tmp_path / "body.json").write_bytes(b'{"a":1}')
    where = ("--data-dir", bridge.ready["data_dir"])
    sent = penstock("webhook", "sign", "github", str(tmp_path / "body.json"), "--send", *where)
    printed = penstock("webhook", "sign", "github", str(tmp_path / "body.json"), *where)
    url = f"http://127.0.0.1:{bridge.port('omnigate')}"
    through = penstock("webhook", "sign", "github", str(tmp_path / "body.json"), "--send", "--url", url, *where)
    unknown = penstock("webhook", "sign", "gitlab", str(tmp_path / "body.json"), "--send", *where)

    assert (sent.returncode, sent.stdout[:2]) == (0, "20"), sent.stdout + sent.stderr
    assert printed.stdout.split()[-1] == "https://hooks.example.org/webhooks/github"
    assert (through.returncode, "duplicate" in through.stdout) == (0, True), through.stdout + through.stderr
    assert (unknown.returncode, "There is no endpoint 'gitlab'" in unknown.stderr) == (1, True)
    assert "fake-secret" not in printed.stdout + sent.stdout
    assert penstock("webhook", "list", "--json", *where).stdout.count('"outcome": "accepted"') == 1


def test_signing_is_for_the_operator(bridge):
    asked = {"name": "github", "body_b64": "e30="}

    assert bridge.ask("admin", "POST", "/v1/node/webhooks/sign", asked).status == 401
    assert bridge.ask("admin", "POST", "/v1/node/webhooks/sign", asked, token=True).status == 200


def test_a_bridge_with_tls_is_sent_to_by_its_own_certificate_or_a_given_one(tmp_path):
    files = make_certificate(tmp_path)
    env = {**os.environ, "HOOK_SECRET": "fake-secret"}
    tls = (
        "--set",
        f"interop.tls.cert_path={files['tls_cert_path']}",
        "--set",
        f"interop.tls.key_path={files['tls_key_path']}",
    )
    (tmp_path / "body.json").write_bytes(b'{"a":1}')
    with NodeProcess(*GITHUB, *tls, data_dir=tmp_path / "data", env=env) as node:
        sign = (
            "webhook",
            "sign",
            "github",
            str(tmp_path / "body.json"),
            "--send",
            "--data-dir",
            str(tmp_path / "data"),
        )
        url = ("--url", f"https://localhost:{node.port('interop')}")
        found, trusted, unknown = (
            penstock(*sign),
            penstock(*sign, *url, "--ca", str(files["tls_cert_path"])),
            penstock(*sign, *url),
        )

    assert (found.returncode, found.stdout[:4]) == (0, "202 "), found.stderr
    assert (trusted.returncode, "duplicate" in trusted.stdout) == (0, True), trusted.stderr
    assert (unknown.returncode, "cannot be reached" in unknown.stderr) == (1, True)
    assert "Give its CA file (--ca," in unknown.stderr
    assert "[SSL" not in unknown.stderr


def test_a_printed_line_trusts_the_certificates_that_were_given(body, capsys):
    main(["webhook", "sign", "github", str(body), *GITHUB, "--url", "https://hooks.example.org", "--ca", "my ca.pem"])

    words = shlex.split(capsys.readouterr().out)
    assert words[words.index("--cacert") + 1] == "my ca.pem"


def test_the_node_that_signs_is_named_by_a_context(bridge, body, monkeypatch, tmp_path):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "HOOK_"))}
    env["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    url = f"http://127.0.0.1:{bridge.port('omnigate')}"
    penstock("context", "add", "near", "--data-dir", bridge.ready["data_dir"], "--use", env=env)
    penstock("context", "add", "far", "--url", url, env=env)

    by_use = penstock("webhook", "sign", "github", str(body), env=env, cwd=tmp_path)
    by_name = penstock("webhook", "sign", "github", str(body), "--context", "near", env=env, cwd=tmp_path)
    far = penstock("webhook", "sign", "github", str(body), "--context", "far", env=env, cwd=tmp_path)
    none = penstock("webhook", "sign", "github", str(body), "--data-dir", str(tmp_path), env=env, cwd=tmp_path)

    assert by_use.stdout.startswith("curl "), by_use.stderr
    assert by_name.stdout.startswith("curl "), by_name.stderr
    assert (far.returncode, f"the node at {url} signs nothing by its gateway" in far.stderr) == (1, True)
    assert (none.returncode, f"no node that takes webhooks runs in {tmp_path}" in none.stderr) == (1, True)
