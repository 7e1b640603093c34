"""Capabilities across the node: the mailbox honours what passport issued, and refuses what passport revoked."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.capability import ed25519
from penstock.capability.caveats import parse_all
from penstock.capability.making import attenuate
from penstock.capability.token import Token, decode, encode, encode_root, root_input
from penstock.kernel.clock import SYSTEM
from tests.acceptance.node_process import Answer, NodeProcess

SEND = {"topic": "orders/eu", "payload_b64": "aGVsbG8="}
# Ends a wait for something that never comes; how soon it must come is shown on virtual time.
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


def bent(node: NodeProcess) -> dict[str, tuple[str, int, str]]:
    """Make one token of every bad kind; each with the status and the reason it is refused with."""
    good = issue(node)["token"]
    child = attenuate(good, parse_all(["topic=orders/eu"]))
    read, narrowed = decode(good), decode(child)
    thief, now = bytes(32), int(SYSTEM.wall())
    own = replace(read, signature=ed25519.sign(thief, root_input(read.root.alg, read.root.kid, read.data)))
    wider = encode_root(replace(read.root, caveats=parse_all(["op=*"])))
    return {
        "no token": ("", 401, "missing"),
        "nonsense": ("psp1_hello", 401, "malformed"),
        "truncated text": (good[:-20], 401, "malformed"),
        "wrong audience": (issue(node, audience="svc-storage")["token"], 403, "caveat:aud"),
        "wrong op": (issue(node, caveats=["op=recv"])["token"], 403, "caveat:op"),
        "wrong topic": (issue(node, caveats=["op=send", "topic=orders/e"])["token"], 403, "caveat:topic"),
        "expired": (attenuate(good, parse_all([f"exp={now - 1}"])), 401, "expired"),
        "not yet valid": (attenuate(good, parse_all([f"nbf={now + 900}"])), 401, "not_yet_valid"),
        "re-signed": (encode(own), 401, "bad_signature"),
        "widened root": (encode(replace(read, data=wider)), 401, "bad_signature"),
        "block cut off": (encode(replace(narrowed, blocks=())), 401, "bad_signature"),
        "another's block": (
            encode(replace(decode(issue(node)["token"]), blocks=narrowed.blocks, proof=narrowed.proof)),
            401,
            "bad_signature",
        ),
        "widened by a block": (attenuate(child, parse_all(["op=*", "topic=orders/us"])), 403, "caveat:topic"),
        "another class": (attenuate(good, parse_all(["scope=internal"])), 403, "caveat:scope"),
        "another tenant": (attenuate(good, parse_all(["tenant=victim"])), 403, "caveat:tenant"),
        "unknown key": (encode(_named(read, "0" * 16)), 401, "unknown_kid"),
    }  # fmt: skip


def _named(token: Token, kid: str) -> Token:
    root = replace(token.root, kid=kid)
    return replace(token, root=root, data=encode_root(root))


def test_every_bad_token_is_refused_by_mailbox_and_passport_alike(node: NodeProcess) -> None:
    context = {"aud": "svc-mailbox", "op": "send", "topic": SEND["topic"]}
    wanted, mailbox, passport = {}, {}, {}
    for name, (token, status, reason) in bent(node).items():
        answer = send(node, token or None)
        verdict = call(node, "passport", "/v1/passport/verify", {"token": token, "context": context}, None).json()
        wanted[name] = (status, reason)
        mailbox[name] = (answer.status, answer.json()["reason"])
        passport[name] = (status if not verdict["ok"] else 200, verdict["reason"])

    assert mailbox == wanted
    assert passport == wanted


@pytest.mark.parametrize("how", ["tid", "subject_ref", "kid", "epoch"])
def test_a_revoked_token_is_refused_by_the_mailbox(node: NodeProcess, how: str) -> None:
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

    limit = time.monotonic() + WITHIN_S
    while (answer := send(node, minted["token"])).status == 200:
        assert time.monotonic() < limit, "a revoked token is still honoured"
    assert (answer.status, answer.json()["reason"]) == (401, "revoked")
    assert call(node, "passport", "/v1/passport/verify", {"token": minted["token"]}, None).json()["reason"] == "revoked"
    if how in {"kid", "epoch"}:
        # The operator's own token fell with them and was issued anew in the same step: nobody locks himself out.
        node.ready["token"] = Path(node.ready["data_dir"], "operator.token").read_text().strip()
        assert send(node, issue(node)["token"]).status == 200


def trimmed(node: NodeProcess) -> bool:
    """Tell whether a spike of refusals has trimmed what is known of tokens."""
    page = node.ask("admin", "GET", "/metrics", token=True).body.decode()
    lines = [line for line in page.splitlines() if line.startswith("cap_cache_trims_total{") and 'why="spike"' in line]
    return any(float(line.rpartition(" ")[2]) for line in lines)


def test_strangers_in_numbers_do_not_make_a_caller_of_their_address_a_stranger() -> None:
    """A spike of refusals trims what is known of tokens; a good one must still be known when its address is refused.

    The node is its own: the address is refused for a while.
    """
    with NodeProcess() as node:
        assert _flooded(node) == {401, 429}


def _flooded(node: NodeProcess) -> set[int]:
    """Send forged tokens until they trimmed the cache, and good ones among more of them; tell how strangers fared."""
    good, forged = issue(node)["token"], issue(node)["token"][:-8]
    assert send(node, good).status == 200
    seen: set[int] = set()
    limit = time.monotonic() + WITHIN_S
    number = 0
    while 429 not in seen or not trimmed(node):
        assert time.monotonic() < limit
        seen |= {send(node, f"{forged}{(number := number + 1):08}").status for _ in range(100)}
    for _ in range(10):
        seen |= {send(node, f"{forged}{(number := number + 1):08}").status for _ in range(60)}
        assert send(node, good).status == 200
    return seen


def test_an_expired_token_is_refused(node: NodeProcess) -> None:
    token = issue(node, ttl_s=1)["token"]
    limit = time.monotonic() + WITHIN_S
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


@pytest.mark.parametrize("path", ["/v1/send", "/v1/send/batch"])
def test_a_budget_of_bytes_is_spent_by_payloads_and_then_refuses(node: NodeProcess, path: str) -> None:
    """Three messages of 5 bytes fit 16; the fourth does not, sent alone or among others."""
    token = issue(node, caveats=["op=send", "topic=orders/", "budget.bytes=16"])["token"]
    body = SEND if path == "/v1/send" else {"messages": [SEND]}

    answers = [call(node, "mailbox", path, body, token) for _ in range(4)]

    if path == "/v1/send":
        refused = answers[3]
        assert [answer.status for answer in answers] == [200, 200, 200, 429]
        assert (refused.json()["code"], refused.json()["scope"]) == ("rate_limited", "capability")
    else:
        codes = [answer.json()["results"][0].get("code") for answer in answers]
        assert codes == [None, None, None, "rate_limited"]
