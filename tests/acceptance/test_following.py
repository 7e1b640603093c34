"""A mailbox apart from its issuer: it follows svc-passport's keys, hears of a revocation, and notices a lost issuer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.testing import wait_until
from tests.acceptance.node_process import Answer, NodeProcess, free_port, penstock

SEND = {"topic": "orders/eu", "payload_b64": "aGVsbG8="}
RECV = {"topic": "orders/eu", "wait_ms": 0}
# Ends a wait for something that never comes. How soon it must come is tested on virtual time, not here.
WITHIN_S = 60.0


def call(node: NodeProcess, service: str, path: str, body: dict[str, Any], token: str | None) -> Answer:
    """Post as the holder of a token."""
    connection = node.connect(service)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        return Answer(answer.status, dict(answer.getheaders()), answer.read())
    finally:
        connection.close()


def send(mailbox: NodeProcess, token: str | None) -> Answer:
    """Send; a machine that stood still for longer than a lease makes the mailbox listen to its issuer first."""
    answers: list[Answer] = []

    def is_judged() -> bool:
        answers.append(call(mailbox, "mailbox", "/v1/send", SEND, token))
        return answers[-1].status != 503

    wait_until(is_judged)
    return answers[-1]


def issue(passport: NodeProcess, operator: str) -> dict[str, Any]:
    asked = {"subject_ref": "ada", "audience": "svc-mailbox", "caveats": ["op=send,recv,ack", "topic=orders/"]}
    answer = call(passport, "passport", "/v1/passport/issue", asked, operator)
    assert answer.status == 200, answer.body
    return dict(answer.json())


def operator_of(folder: Path) -> str:
    return (folder / "operator.token").read_text().strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "issuer"


@pytest.fixture
def passport(folder: Path) -> Iterator[NodeProcess]:
    with NodeProcess(*at_port(free_port()), data_dir=folder, command=("serve", "passport")) as running:
        yield running


def at_port(port: int) -> tuple[str, ...]:
    return ("--set", f"passport.bind_addr=127.0.0.1:{port}")


def mailbox_of(issuer: str | None, data_dir: Path | None, *, grace: str = "30s") -> NodeProcess:
    named = () if issuer is None else ("--set", f"capability.issuer={issuer}")
    return NodeProcess(
        *named, "--set", f"capability.stale_grace={grace}", data_dir=data_dir, command=("serve", "mailbox")
    )


@pytest.mark.parametrize("by", ["url", "published file"])
def test_a_token_is_honoured_apart_from_its_issuer_and_refused_after_its_revocation(
    passport: NodeProcess, folder: Path, by: str
) -> None:
    url = f"http://127.0.0.1:{passport.port('passport')}"
    token = issue(passport, operator_of(folder))["token"]
    with mailbox_of(url, None) if by == "url" else mailbox_of(None, folder) as mailbox:
        assert send(mailbox, token).status == 200
        assert send(mailbox, None).status == 401
        assert send(mailbox, token[:-4] + "AAAA").status == 401
        wait_until(lambda: mailbox.ask("mailbox", "GET", "/readyz").json()["gates"]["capability"] is True)
        revoked = call(passport, "passport", "/v1/passport/revoke", {"subject_ref": "ada"}, operator_of(folder))
        assert revoked.status == 200, revoked.body

        wait_until(lambda: send(mailbox, token).status == 401)
        assert send(mailbox, token).json()["reason"] == "revoked"


def test_without_its_issuer_a_mailbox_refuses_to_take_then_also_to_give_and_recovers(
    passport: NodeProcess, folder: Path
) -> None:
    port = passport.port("passport")
    token = issue(passport, operator_of(folder))["token"]
    issuer = f"http://127.0.0.1:{port}"
    # One whose grace outlasts this test, and one that has none: nothing here has to happen between two moments.
    with mailbox_of(issuer, None, grace="10m") as patient, mailbox_of(issuer, None, grace="0s") as strict:

        def status(mailbox: NodeProcess, path: str, body: dict[str, Any]) -> int:
            return call(mailbox, "mailbox", path, body, token).status

        assert (send(patient, token).status, send(strict, token).status) == (200, 200)
        passport.process.kill()
        passport.process.wait()
        wait_until(lambda: status(patient, "/v1/send", SEND) == 503)
        assert call(patient, "mailbox", "/v1/send", SEND, token).json()["reason"] == "revocation_feed"
        assert status(patient, "/v1/recv", RECV) == 200
        assert patient.ask("mailbox", "GET", "/readyz").json()["missing"] == ["capability"]
        wait_until(lambda: status(strict, "/v1/recv", RECV) == 503)

        with NodeProcess(*at_port(port), data_dir=folder, command=("serve", "passport")):
            wait_until(lambda: status(patient, "/v1/send", SEND) == 200)
            wait_until(lambda: status(strict, "/v1/recv", RECV) == 200)


def test_who_has_nobody_to_believe_is_not_started_or_not_ready(tmp_path: Path) -> None:
    lost = penstock("serve", "mailbox", "--amnesia", "--ephemeral-ports", "--json")
    assert lost.returncode == 2
    assert "capability.issuer" in lost.stderr
    bad = penstock("serve", "mailbox", "--amnesia", "--ephemeral-ports", "--set", "capability.issuer=http://")
    assert bad.returncode == 2

    with mailbox_of(None, tmp_path) as mailbox:
        assert mailbox.ask("mailbox", "GET", "/readyz").status == 503
        assert call(mailbox, "mailbox", "/v1/send", SEND, "psp1_x").status in (401, 503)
