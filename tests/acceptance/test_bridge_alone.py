"""svc-interop in a process of its own: beside its services on one data directory, and far from them over TLS."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
from contextlib import ExitStack, closing
from pathlib import Path

from penstock.kernel.clock import SYSTEM
from penstock.testing import wait_until
from tests.acceptance.node_process import Answer, NodeProcess, ask, penstock
from tests.net.server.certificates import make_certificate
from tests.services.interop.senders import SENDERS

PAGE = (Path(__file__).parents[2] / "docs" / "services" / "interop.md").read_text()
ENV = {**os.environ, "HOOK_SECRET": SENDERS["github"].secret}
HOOK = ("--set", "interop.providers.github.secrets=env:HOOK_SECRET")


def deliver(node: NodeProcess, service: str, body: bytes, secret: str | None = None) -> Answer:
    sent = SENDERS["github"].send(body, now=int(SYSTEM.wall()), **({} if secret is None else {"secret": secret}))
    connection = node.connect(service)
    try:
        fields = {name.decode(): value.decode() for name, value in sent.fields}
        connection.request("POST", "/webhooks/github", sent.body, fields)
        answer = connection.getresponse()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def until_ready(node: NodeProcess) -> None:
    wait_until(lambda: node.ask("interop", "GET", "/readyz").status == 200)


def bodies(found: str) -> list[str]:
    """Read what `recv --json` printed."""
    messages = [json.loads(line) for line in found.splitlines()]
    return [json.loads(base64.b64decode(message["payload_b64"]))["body"] for message in messages]


def test_services_on_one_data_directory_find_each_other_and_the_gateway_the_bridge(tmp_path: Path) -> None:
    here, data = ("--data-dir", str(tmp_path / "data")), tmp_path / "data"
    with ExitStack() as stack:
        for service in ("passport", "mailbox"):
            stack.enter_context(NodeProcess(data_dir=data, command=("serve", service)))
        bridge = stack.enter_context(NodeProcess(*HOOK, data_dir=data, command=("serve", "interop"), env=ENV))
        gateway = stack.enter_context(NodeProcess(data_dir=data, command=("serve", "omnigate")))
        until_ready(bridge)
        direct = deliver(bridge, "interop", b'{"n":1}')
        through = deliver(gateway, "omnigate", b'{"n":2}')
        again = deliver(gateway, "omnigate", b'{"n":1}')
        bad = deliver(gateway, "omnigate", b'{"n":3}', secret="wrong-fake")
        listed = penstock("webhook", "list", "--json", *here)
        received = penstock("recv", "webhooks/github", "--max", "10", "--json", *here)
        token = (data / "operator.token").read_text().strip()
        with closing(bridge.connect("interop")) as connection:
            put = ask(connection, "POST", "/put", {"payload": "Zg=="}, token)

    assert [answer.status for answer in (direct, through, again, bad)] == [202, 202, 202, 401], through.body
    assert again.json()["msg_id"] == direct.json()["msg_id"]
    assert listed.returncode == 0, (listed.stdout, listed.stderr)
    assert [each["outcome"] for each in json.loads(listed.stdout)["deliveries"]] == [
        "refused", "duplicate", "accepted", "accepted",
    ]  # fmt: skip
    assert sorted(bodies(received.stdout)) == ['{"n":1}', '{"n":2}']
    # Nobody started svc-storage, and the answer says so.
    assert (put.status, "svc-storage" in put.json()["detail"]) == (503, True)


def test_bridge_reaches_mailbox_and_passport_elsewhere_over_tls(tmp_path: Path) -> None:
    files = make_certificate(tmp_path)
    certificate, key = str(files["tls_cert_path"]), str(files["tls_key_path"])
    secure = [
        word
        for table in ("mailbox", "passport")
        for name, value in (("tls_cert_path", certificate), ("tls_key_path", key))
        for word in ("--set", f"{table}.{name.replace('tls_', 'tls.')}={value}")
    ]
    command = re.search(r"^    (penstock token issue .*svc-interop.*)$", PAGE, re.MULTILINE)[1]
    token, data = tmp_path / "issuer.token", tmp_path / "data"
    with NodeProcess("--set", "node.interop=false", *secure, data_dir=data) as node:
        issued = penstock(*shlex.split(command)[1:], "--data-dir", str(data))
        assert issued.returncode == 0, issued.stderr
        token.write_text(issued.stdout.strip())
        token.chmod(0o600)
        places = {
            "interop.downstream.mailbox": f"https://localhost:{node.port('mailbox')}",
            "interop.downstream.passport": f"https://localhost:{node.port('passport')}",
            "interop.downstream.certificate": certificate,
            "capability.issuer": f"https://localhost:{node.port('passport')}",
            "capability.issuer_certificate": certificate,
        }
        (tmp_path / "bridge.toml").write_text(f'[interop]\nissuer_token = ["file:{token}"]\n')
        far = ["--config", str(tmp_path / "bridge.toml")]
        far += [word for name, value in places.items() for word in ("--set", f"{name}={value}")]
        with NodeProcess(*HOOK, *far, command=("serve", "interop"), env=ENV) as bridge:
            until_ready(bridge)
            first = deliver(bridge, "interop", b'{"n":1}')
            again = deliver(bridge, "interop", b'{"n":1}')
        received = penstock("recv", "webhooks/github", "--max", "10", "--json", "--data-dir", str(data))

    assert (first.status, again.status) == (202, 202), first.body
    assert (again.json()["duplicate"], again.json()["msg_id"]) == (True, first.json()["msg_id"])
    assert bodies(received.stdout) == ['{"n":1}']
