"""Capabilities across the node: what passport issues the mailbox honours, and what it takes back the mailbox refuses."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.node_process import Answer, NodeProcess

SEND = {"topic": "orders/eu", "payload_b64": "aGVsbG8="}
REVOKED_WITHIN_S = 1.0


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


def issue(node: NodeProcess, **fields: Any) -> dict[str, Any]:
    """Mint with the operator's token; by default what a producer needs."""
    asked = {"subject_ref": "ada", "audience": "svc-mailbox", "caveats": ["op=send", "topic=orders/"], **fields}
    answer = call(node, "passport", "/v1/passport/issue", asked, node.ready["token"])
    assert answer.status == 200, answer.body
    return dict(answer.json())


def send(node: NodeProcess, token: str | None, **fields: Any) -> Answer:
    return call(node, "mailbox", "/v1/send", {**SEND, **fields}, token)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One node for all: a data directory, because a revocation may mint the operator's token anew."""
    with NodeProcess(data_dir=tmp_path_factory.mktemp("node")) as running:
        yield running


def test_a_token_opens_what_it_names_and_nothing_else(node: NodeProcess) -> None:
    token = issue(node)["token"]
    other = issue(node, audience="svc-storage")["token"]

    assert send(node, token).status == 200
    refusals = {
        "no token": send(node, None),
        "wrong audience": send(node, other),
        "wrong topic": send(node, token, topic="orders-private"),
        "wrong op": call(node, "mailbox", "/v1/recv", {"topic": "orders/eu"}, token),
        "forged": send(node, token[:-4] + ("AAAA" if token[-4:] != "AAAA" else "BBBB")),
        "truncated": send(node, token[:-20]),
        "nonsense": send(node, "psp1_hello"),
    }
    told = {name: (answer.status, answer.json()["code"]) for name, answer in refusals.items()}
    assert told == {
        "no token": (401, "unauthenticated"),
        "wrong audience": (403, "forbidden"),
        "wrong topic": (403, "forbidden"),
        "wrong op": (403, "forbidden"),
        "forged": (401, "unauthenticated"),
        "truncated": (401, "unauthenticated"),
        "nonsense": (401, "unauthenticated"),
    }


@pytest.mark.parametrize("how", ["tid", "subject_ref", "kid", "epoch"])
def test_a_revoked_token_is_refused_by_the_mailbox_within_a_second(node: NodeProcess, how: str) -> None:
    minted = issue(node, subject_ref=f"holder-of-{how}")
    assert send(node, minted["token"]).status == 200
    claims = call(node, "passport", "/v1/passport/verify", {"token": minted["token"]}, None).json()["claims"]
    wanted = {
        "tid": claims["tid"],
        "subject_ref": f"holder-of-{how}",
        "kid": minted["kid"],
        "epoch": minted["epoch"] + 1,
    }[how]
    revoked = call(node, "passport", "/v1/passport/revoke", {how: wanted, "reason": "test"}, node.ready["token"])
    assert revoked.status == 200, revoked.body

    limit = time.monotonic() + REVOKED_WITHIN_S
    while (answer := send(node, minted["token"])).status == 200:
        assert time.monotonic() < limit, "a revoked token is still honoured"
    assert (answer.status, answer.json()["reason"]) == (401, "revoked")
    if how in {"kid", "epoch"}:
        # The operator's own token fell with them and was minted anew in the same step: nobody locks himself out.
        node.ready["token"] = Path(node.ready["data_dir"], "operator.token").read_text().strip()
        assert send(node, issue(node)["token"]).status == 200


def test_an_expired_token_is_refused(node: NodeProcess) -> None:
    token = issue(node, ttl_s=1)["token"]
    limit = time.monotonic() + 5
    while (answer := send(node, token)).status == 200:
        assert time.monotonic() < limit
    assert (answer.status, answer.json()["code"]) == (401, "expired")


def test_messages_and_tokens_survive_kill_9(tmp_path: Path) -> None:
    with NodeProcess(data_dir=tmp_path) as first:
        token = issue(first, caveats=["op=send,recv,ack", "topic=orders/"])["token"]
        sent = send(first, token).json()["msg_id"]
        first.signal(signal.SIGKILL)
        first.wait()
    with NodeProcess(data_dir=tmp_path) as again:
        received = call(again, "mailbox", "/v1/recv", {"topic": "orders/eu", "wait_ms": 2000}, token)

        assert [message["msg_id"] for message in received.json()["messages"]] == [sent]
