"""The gateway as a user meets it: in front of the node's own services, and of a service of the user's own."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
from functools import partial
from pathlib import Path

import pytest

from penstock.testing import wait_until
from tests.acceptance.gateway_kit import POLICY, SLOTS, WITHIN_S, ask, issue, node, upstream
from tests.acceptance.node_process import NodeProcess
from tests.acceptance.upstream_process import Upstream

__all__ = ["node", "upstream"]

POLLS = SLOTS + 32
GROUP = 32


# --- the node's own services


def test_objects_are_kept_by_their_digest_and_come_whole_in_ranges_or_not_at_all(node: NodeProcess) -> None:
    data = os.urandom(300_000)
    put = ask(node, "PUT", "/v1/o", data)
    address = put.json()["address"]

    whole = ask(node, "GET", f"/v1/o/{address}")
    part = ask(node, "GET", f"/v1/o/{address}", Range="bytes=65000-140000")

    assert (put.status, ask(node, "PUT", "/v1/o", data).status) == (201, 200)
    assert (whole.status, whole.body, whole.headers["etag"]) == (200, data, f'"{address}"')
    assert (part.status, part.body) == (206, data[65000:140001])
    assert part.headers["content-range"] == "bytes 65000-140000/300000"
    assert ask(node, "GET", f"/v1/o/{address}", If_None_Match=f'"{address}"').status == 304
    assert ask(node, "GET", f"/v1/o/{address}", Range="bytes=300000-").status == 416
    head = ask(node, "HEAD", f"/v1/o/{address}")
    assert (head.status, head.headers["content-length"], head.body) == (200, "300000", b"")
    assert ask(node, "GET", "/v1/o/b3:" + "0" * 64).status == 404
    assert ask(node, "GET", "/v1/o/sha256:00").status == 400
    assert ask(node, "PUT", "/v1/o", data, X_Expect_Addr="b3:" + "0" * 64).status == 409
    assert ask(node, "PUT", "/v1/o", b"x" * ((1 << 20) + 1)).status == 201
    assert ask(node, "PUT", "/v1/o", b"", Content_Length=str((64 << 20) + 1)).status == 413


def test_a_message_goes_through_the_gateway_and_back(node: NodeProcess) -> None:
    sent = ask(node, "POST", "/v1/mailbox/gw%2Forders", b"hello", Idempotency_Key="one")
    again = ask(node, "POST", "/v1/mailbox/gw%2Forders", b"hello", Idempotency_Key="one")
    got = ask(node, "POST", "/v1/mailbox/gw%2Forders/recv", b"{}").json()["messages"]

    assert (sent.json()["msg_id"], again.json()["duplicate"]) == (again.json()["msg_id"], True)
    assert [base64.b64decode(message["payload_b64"]) for message in got] == [b"hello"]
    settle = json.dumps({"msg_id": got[0]["msg_id"], "receipt": got[0]["receipt"]}).encode()
    stale = json.dumps({"msg_id": got[0]["msg_id"], "receipt": got[0]["receipt"], "visibility_ms": 1000}).encode()
    assert ask(node, "POST", "/v1/mailbox/gw%2Forders/ack", settle).json() == {"ok": True}
    assert ask(node, "POST", "/v1/mailbox/gw%2Forders/extend", stale).status in {404, 409}
    assert ask(node, "POST", "/v1/mailbox/gw%2Forders/recv", b'{"topic":"other"}').status == 400


@pytest.mark.parametrize(
    ("audience", "caveats", "expected"),
    [
        ("omnigate", ("op=send", "topic=gw/"), 200),
        ("svc-mailbox", ("op=send", "topic=gw/"), 403),  # for the gateway's check it will do, but see below
        ("svc-storage", ("op=send", "topic=gw/"), 403),
        ("omnigate", ("op=recv", "topic=gw/"), 403),
        ("omnigate", ("op=send", "topic=other/"), 403),
        ("omnigate", ("op=send", "topic=gw/", "method=GET"), 403),
        ("omnigate", ("op=send", "topic=gw/", "route=/v1/o"), 403),
        ("omnigate", ("op=send", "topic=gw/", "ip=192.0.2.0/24"), 403),
    ],
)
def test_a_capability_opens_what_it_names(
    node: NodeProcess, audience: str, caveats: tuple[str, ...], expected: int
) -> None:
    both = [audience, "svc-mailbox"] if audience == "omnigate" else audience
    token = issue(node, *caveats, audience=both)  # type: ignore[arg-type]

    answer = ask(node, "POST", "/v1/mailbox/gw%2Fcaps", b"x", token=token)

    if audience == "svc-mailbox":
        # A token whose audience is the service the route leads to passes the gateway too.
        expected = 200
    assert answer.status == expected, answer.body


def test_a_token_for_the_gateway_alone_opens_what_is_behind_it_and_not_the_services_own_door(node: NodeProcess) -> None:
    token = issue(node, "op=send,put,get", audience="omnigate")

    assert ask(node, "POST", "/v1/mailbox/gw%2Falone", b"x", token=token).status == 200
    assert ask(node, "PUT", "/v1/o", b"x", token=token).status == 201
    connection = node.connect("mailbox")
    connection.request("POST", "/v1/send/gw%2Falone", b"x", {"Authorization": f"Bearer {token}"})
    assert connection.getresponse().status == 403
    connection.close()


def test_a_revoked_token_is_refused(node: NodeProcess) -> None:
    token = issue(node, "op=get", subject_ref="revoked")
    assert ask(node, "GET", "/known/x", token=token).status == 200

    ask(node, "POST", "/v1/passport/revoke", b'{"subject_ref":"revoked"}')

    # That it takes no second is shown on virtual time, where the machine's own haste does not count.
    wait_until(lambda: ask(node, "GET", "/known/x", token=token).status == 401)


def test_idle_long_polls_leave_the_gateways_capacity_untouched(node: NodeProcess) -> None:
    head = (
        "POST /v1/mailbox/gw%2Fidle/recv HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {node.ready['token']}\r\n"
    )
    body = b'{"wait_ms":20000}'
    request = head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body

    def parked_are(count: int) -> bool:
        return node.metric('fq_parked{service="omnigate"}') == count

    polls = [socket.create_connection(("127.0.0.1", node.port("omnigate"))) for _ in range(POLLS)]
    try:
        # A burst above the class's places would be refused, and rightly so: they come one group after the other.
        for first in range(0, POLLS, GROUP):
            for poll in polls[first : first + GROUP]:
                poll.sendall(request)
            wait_until(partial(parked_are, first + GROUP))

        assert node.metric('fq_inflight{class="internal",service="omnigate"}') <= 1
        assert ask(node, "GET", "/shop/now").status == 200
        assert ask(node, "POST", "/v1/mailbox/gw%2Fidle", b"wake up").status == 200
        wait_until(lambda: sum(answered(poll) for poll in polls) == 1)
    finally:
        for poll in polls:
            poll.close()
    wait_until(lambda: parked_are(0))


def answered(poll: socket.socket) -> bool:
    """Tell whether something came, without waiting for it."""
    poll.setblocking(False)
    try:
        return b"wake" in base64.b64decode(
            json.loads(poll.recv(4096, socket.MSG_PEEK).partition(b"\r\n\r\n")[2])["messages"][0]["payload_b64"]
        )
    except (BlockingIOError, ValueError, IndexError):
        return False
    finally:
        poll.setblocking(True)


# --- a service of the user's own


def test_a_configured_route_passes_on_what_it_should_and_nothing_else(node: NodeProcess, upstream: Upstream) -> None:
    upstream.seen.clear()

    answer = ask(
        node, "POST", "/shop/cart?x=1", b"body", token="", X_Forwarded_For="192.0.2.1", X_Penstock_Tenant="root",
        Forwarded="for=192.0.2.1", Connection="x-secret, close", X_Secret="s", X_Under_Score="kept",
    )  # fmt: skip

    assert answer.status == 200
    assert len(upstream.seen) == 1
    seen, names = upstream.seen[0], {name.lower() for name in upstream.seen[0]["headers"]}
    assert (seen["path"], seen["body"]) == ("/cart?x=1", "body")
    assert seen["headers"]["Forwarded"].startswith("for=127.0.0.1")
    assert not {"authorization", "x-penstock-tenant", "x-forwarded-for", "x-secret"} & names
    assert {"x-corr-id", "x-deadline-ms"} <= names


def test_an_upstream_is_told_who_asks_only_as_configured(node: NodeProcess, upstream: Upstream) -> None:
    token = issue(node, "op=get", subject_ref="grace", tenant="acme")
    upstream.seen.clear()

    for prefix in ("shop", "known", "narrow"):
        assert ask(node, "GET", f"/{prefix}/x", token=token).status == 200
    plain, known, narrow = ({k.lower(): v for k, v in seen["headers"].items()} for seen in upstream.seen)

    assert "authorization" not in plain
    assert "x-penstock-identity" not in plain
    statement = json.loads(base64.urlsafe_b64decode(known["x-penstock-identity"].split(".")[1] + "=="))
    assert (statement["sub"], statement["tenant"], statement["aud"]) == ("grace", "acme", "/known")
    assert "authorization" not in known
    sealed = narrow["authorization"].removeprefix("Bearer ")
    assert sealed != token
    judged = ask(node, "POST", "/v1/passport/verify", json.dumps({"token": sealed}).encode(), token="").json()
    assert judged["ok"]
    assert {"aud=route:/narrow", "method=GET", "route=/narrow/x", "op=get"} <= set(judged["claims"]["caveats"])


def test_an_upstream_can_do_nothing_in_the_node_with_what_it_was_forwarded(
    node: NodeProcess, upstream: Upstream
) -> None:
    """Not even where the caller is the operator: the token is for the route, which no service is."""
    upstream.seen.clear()
    assert ask(node, "GET", "/narrow/x").status == 200
    (seen,) = upstream.seen
    sealed = {k.lower(): v for k, v in seen["headers"].items()}["authorization"].removeprefix("Bearer ")

    tries = [
        ("POST", "/v1/passport/revoke", b'{"epoch": 1}'),
        ("POST", "/v1/passport/issue", b'{"subject_ref": "eve", "audience": "*"}'),
        ("POST", "/v1/mailbox/orders", b"x"),
        ("POST", "/v1/mailbox/orders/recv", b"{}"),
        ("GET", "/known/x", b""),
        ("GET", "/narrow/x", b""),
    ]
    assert {ask(node, *each, token=sealed).status for each in tries} == {403}


def test_a_route_that_requires_a_capability_is_shut_without_one(node: NodeProcess) -> None:
    assert ask(node, "GET", "/known/x", token="").status == 401
    assert ask(node, "GET", "/known/x", token=issue(node, "op=send")).status == 403


def test_a_token_can_be_bound_to_one_route(node: NodeProcess) -> None:
    """As the how-to for the gateway says it; a route is no audience of an issued token."""
    token = issue(node, "op=get", "route=/known", "method=GET")

    assert ask(node, "GET", "/known/x", token=token).status == 200
    assert {ask(node, "GET", f"/{other}/x", token=token).status for other in ("shop", "narrow")} == {403}
    wanted = json.dumps({"subject_ref": "ada", "audience": "route:/known", "caveats": []}).encode()
    refused = ask(node, "POST", "/v1/passport/issue", wanted).json()
    assert (refused["reason"], "the caveat route=/known" in refused["hint"]) == ("bad_audience", True)


def test_policy_is_asked_before_the_upstream_and_a_bad_bundle_leaves_the_old_one(
    node: NodeProcess, upstream: Upstream
) -> None:
    upstream.seen.clear()
    policy: Path = node.policy  # type: ignore[attr-defined]

    refused = ask(node, "GET", "/shop/embargoed/item", token="")
    policy.write_text("default_action = 'perhaps'")
    try:
        node.signal(signal.SIGHUP)
        wait_until(lambda: "reload" in ask(node, "GET", "/readyz").json()["degraded"])
        still = ask(node, "GET", "/shop/embargoed/item", token="")
    finally:
        policy.write_text(POLICY)
        node.signal(signal.SIGHUP)
    wait_until(lambda: "reload" not in ask(node, "GET", "/readyz").json()["degraded"])

    assert (refused.status, refused.json()["reason"], still.status) == (451, "legal", 451)
    assert upstream.seen == []


# --- life


def test_killed_workers_come_back_and_readiness_tells(node: NodeProcess) -> None:
    with socket.create_connection(("127.0.0.1", node.port("omnigate"))) as waiting:
        token = node.ready["token"]
        body = b'{"wait_ms":20000}'
        head = f"POST /v1/mailbox/gw%2Fkill/recv HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        waiting.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        wait_until(lambda: node.metric('fq_parked{service="omnigate"}') == 1)

        assert node.kill_task("worker_pool").status == 200
        waiting.settimeout(WITHIN_S)
        assert b" 503 " in waiting.recv(4096)[:20]

    wait_until(lambda: ask(node, "GET", "/readyz").json()["ready"])
    assert ask(node, "POST", "/v1/mailbox/gw%2Fkill", b"x").status == 200
    wait_until(lambda: node.metric('fq_inflight{class="internal",service="omnigate"}') == 0)


def test_a_drain_answers_what_was_admitted(tmp_path: Path) -> None:
    with Upstream() as slow:
        config = tmp_path / "penstock.toml"
        config.write_text(
            '[omnigate]\ndefault_deadline = "60s"\ndrain_deadline = "5s"\n'
            f'[[omnigate.routes]]\nprefix = "/slow"\nupstream = ["{slow.url}"]\ntimeout = "60s"\n',
            encoding="ascii",
        )
        with NodeProcess("--config", str(config)) as running:
            connection = running.connect("omnigate")
            connection.request("GET", "/slow/stall")
            wait_until(lambda: len(slow.seen) == 1)

            running.signal(signal.SIGTERM)
            slow.released.set()

            assert connection.getresponse().status == 200
            connection.close()
            code, _, log = running.wait()
            assert code == 0, log


def test_the_status_tells_whether_the_gateway_sheds_work(node: NodeProcess) -> None:
    def told() -> dict[str, tuple[bool | None, str]]:
        status = node.ask("admin", "GET", "/status", token=True).json()
        return {row["service"]: (row["brownout"], row["brownout_why"]) for row in status["services"]}

    # A machine that stands still makes it shed for a moment, and rightly so.
    wait_until(lambda: told()["omnigate"] == (False, ""))
    assert told()["svc-storage"] == (None, "")
