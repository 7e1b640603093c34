"""A gateway and its services, each in its own process: `penstock serve` four times on one data directory."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from penstock.testing import wait_until
from tests.acceptance.node_process import Answer, NodeProcess, free_port, penstock

SERVICES = ("passport", "mailbox", "storage")
# Nothing here is about how much is allowed or how long it may take.
NO_QUOTAS = (
    "--set", "omnigate.quotas.default_rps=0", "--set", "omnigate.quotas.per_ip_rps=0", "--set",
    "omnigate.quotas.per_cap_rps=0",
    "--set", "omnigate.default_deadline=60s", "--set", "omnigate.downstream.request_timeout=60s",
)  # fmt: skip
WITHIN_S = 60.0
POLLS = 100  # more than one connection's window


def serve(service: str, folder: Path | None, *arguments: str) -> NodeProcess:
    """Describe one service alone."""
    return NodeProcess(*arguments, data_dir=folder, command=("serve", service))


class Site:
    """The gateway, the services behind it, and the operator's token."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self.behind: dict[str, NodeProcess] = {}
        for service in SERVICES:
            self.start(service)
        self._metrics_port = free_port()
        watched = ("--set", f"omnigate.metrics_addr=127.0.0.1:{self._metrics_port}")
        self.gateway = stack.enter_context(serve("omnigate", folder, *NO_QUOTAS, *watched))
        self.operator = (folder / "operator.token").read_text().strip()

    def start(self, service: str) -> None:
        """Start one of the services, or start it again."""
        self.behind[service] = self._stack.enter_context(serve(service, self.folder))

    def kill(self, service: str) -> None:
        """End one without a word."""
        self.behind[service].process.kill()
        self.behind[service].process.wait()

    def ask(
        self, method: str, path: str, body: bytes | None = None, *, token: str | None = None, **fields: str
    ) -> Answer:
        """Ask the gateway; the operator's token unless another, or none (""), is given."""
        return ask(self.gateway, method, path, body, self.operator if token is None else token, **fields)

    def well(self) -> None:
        """Wait until the gateway finds everything behind it well."""
        wait_until(lambda: self.ask("GET", "/readyz").json()["degraded"] == [])

    def waiting(self) -> float:
        """Count the long polls that wait without a slot."""
        with closing(http.client.HTTPConnection("127.0.0.1", self._metrics_port, timeout=WITHIN_S)) as connection:
            connection.request("GET", "/metrics")
            lines = connection.getresponse().read().decode().splitlines()
        return next(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("fq_parked{"))

    def issue(self, *caveats: str, audience: str = "omnigate") -> str:
        """Mint through the gateway."""
        asked = {"subject_ref": "ada", "audience": audience, "caveats": list(caveats)}
        answer = self.ask("POST", "/v1/passport/issue", json.dumps(asked).encode())
        assert answer.status == 200, answer.body
        return str(answer.json()["token"])


def ask(
    gateway: NodeProcess, method: str, path: str, body: bytes | None = None, token: str = "", **fields: str
) -> Answer:
    """Ask a gateway; again, if the machine stood still for longer than it believes its issuer without hearing of it."""
    headers = {name.replace("_", "-"): value for name, value in fields.items()}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    until = time.monotonic() + WITHIN_S
    while True:
        with closing(gateway.connect("omnigate")) as connection:
            connection.request(method, path, body, headers)
            got = connection.getresponse()
            answer = Answer(got.status, {name.lower(): value for name, value in got.getheaders()}, got.read())
        if answer.status != 503 or b"revocation_feed" not in answer.body or time.monotonic() > until:
            return answer


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(tmp_path_factory.mktemp("alone"), stack)


def test_a_message_and_an_object_go_through_it(site: Site) -> None:
    sent = site.ask("POST", "/v1/mailbox/kitchen", b"two pizzas", Idempotency_Key="order-1")
    again = site.ask("POST", "/v1/mailbox/kitchen", b"two pizzas", Idempotency_Key="order-1")
    (message,) = site.ask("POST", "/v1/mailbox/kitchen/recv", b"{}").json()["messages"]
    receipt = {"msg_id": message["msg_id"], "receipt": message["receipt"]}
    acked = site.ask("POST", "/v1/mailbox/kitchen/ack", json.dumps(receipt).encode())
    # As large as a body of the gateway's may be: more than one frame, and more than one piece on the way back.
    whole = bytes(range(256)) * 4096
    stored = site.ask("PUT", "/v1/o", whole)
    path = f"/v1/o/{stored.json()['address']}"

    assert (sent.status, again.json()["duplicate"], message["payload_b64"]) == (200, True, "dHdvIHBpenphcw==")
    assert acked.status == 200
    assert (stored.status, site.ask("GET", path).body) == (201, whole)
    assert site.ask("GET", path, Range="bytes=70000-70009").body == whole[70000:70010]
    assert site.ask("GET", path, If_None_Match=f'"{stored.json()["address"]}"').status == 304


def test_good_and_bad_tokens_are_told_apart_and_a_caveat_is_judged_on_what_came_to_the_gateway(site: Site) -> None:
    narrow = site.issue("op=send", "topic=orders/", "route=/v1/mailbox", "method=POST", "ip=127.0.0.1/32")
    elsewhere = site.issue("op=send", "topic=orders/", "ip=192.0.2.0/24")
    for_another = site.issue("op=send", audience="svc-storage")

    def send(token: str, topic: str = "orders%2Feu") -> Answer:
        return site.ask("POST", f"/v1/mailbox/{topic}", b"x", token=token)

    assert send(narrow).status == 200
    assert send(site.issue("op=send", audience="svc-mailbox")).status == 200
    assert send(narrow, "secrets").json()["reason"] == "caveat:topic"
    assert send(elsewhere).json()["reason"] == "caveat:ip"
    assert send(for_another).status == 403
    assert send("").json()["reason"] == "missing"
    assert send(narrow[:-6] + "AAAAAA").status == 401


def test_a_budget_is_charged_once_however_many_calls_a_request_is_made_of(site: Site) -> None:
    path = f"/v1/o/{site.ask('PUT', '/v1/o', bytes(200_000)).json()['address']}"
    token = site.issue("op=get", "budget.reqs=3")

    # Each is a look and four pieces behind the gateway.
    assert [site.ask("GET", path, token=token).status for _ in range(4)] == [200, 200, 200, 429]


def test_a_revoked_token_is_refused_by_the_gateway(site: Site) -> None:
    token = site.issue("op=send")
    assert site.ask("POST", "/v1/mailbox/orders", b"x", token=token).status == 200
    revoked = site.ask("POST", "/v1/passport/revoke", b'{"subject_ref":"ada"}')
    assert revoked.status == 200, revoked.body

    # That it takes no second is shown on virtual time, where the machine's own haste does not count.
    wait_until(lambda: site.ask("POST", "/v1/mailbox/orders", b"x", token=token).status == 401)


def test_more_polls_wait_than_a_connection_has_places_and_hold_up_nobody(site: Site) -> None:
    async def poll() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.gateway.port("omnigate"))
        body = b'{"wait_ms":20000}'
        head = (
            "POST /v1/mailbox/quiet/recv HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {site.operator}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        answer = b""
        while b"payload_b64" not in answer:  # a wait that ended before its message came is begun anew
            writer.write(head.encode() + body)
            fields = (await reader.readuntil(b"\r\n\r\n")).lower()
            answer = await reader.readexactly(int(fields.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        writer.close()
        return answer

    async def crowd() -> list[bytes]:
        async with asyncio.TaskGroup() as all_of_them:
            polls = [all_of_them.create_task(poll()) for _ in range(POLLS)]
            await asyncio.to_thread(wait_until, lambda: site.waiting() >= POLLS)
            for number in range(POLLS):
                sent = await asyncio.to_thread(site.ask, "POST", "/v1/mailbox/quiet", b"%d" % number)
                assert sent.status == 200
        return [poll.result() for poll in polls]

    answers = asyncio.run(crowd())
    payloads = {answer.partition(b'"payload_b64":"')[2].partition(b'"')[0] for answer in answers}

    assert payloads == {base64.b64encode(b"%d" % number) for number in range(POLLS)}


def test_a_service_that_does_not_answer_is_waited_for_as_long_as_the_client_asked(site: Site) -> None:
    site.behind["storage"].signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        answer = site.ask("GET", "/v1/o/b3:" + "0" * 64, X_Deadline_Ms="3000")
        took_s = time.monotonic() - began
    finally:
        site.behind["storage"].signal(signal.SIGCONT)
    site.well()

    # Where the machine froze just before the deadline, the listener answers in the gateway's place, as "request".
    assert (answer.status, answer.json()["op"] in ("rpc", "request")) == (504, True)
    assert answer.json()["budget_ms"] <= 3000
    assert took_s > 2.0


def test_a_service_that_is_killed_costs_its_own_routes_and_comes_back_without_a_restart(site: Site) -> None:
    def recv() -> Answer:
        return site.ask("POST", "/v1/mailbox/orders/recv", b"{}")

    stored = site.ask("PUT", "/v1/o", b"kept").json()["address"]
    site.kill("mailbox")
    answers = [recv()]

    def is_told() -> bool:
        # Half of all calls of the last ten seconds have to fail before its breaker opens.
        answers.append(recv())
        return site.ask("GET", "/readyz").json()["degraded"] == ["downstreams"]

    def is_left_alone() -> bool:
        # Now and then one call is let through, to see whether it is back.
        answers.append(recv())
        return "left alone" in answers[-1].json()["detail"]

    wait_until(is_told)
    shed = site.ask("POST", "/v1/mailbox/orders", b"x")
    still = site.ask("GET", f"/v1/o/{stored}")
    wait_until(is_left_alone)
    site.start("mailbox")
    # Only writes from here on: nobody's request is needed to find out that it is back.
    wait_until(lambda: site.ask("POST", "/v1/mailbox/orders", b"x").status == 200)

    assert {answer.status for answer in answers} == {503}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in [*answers, shed])
    assert {answer.json()["code"] for answer in answers} == {"downstream_unavailable"}
    assert (shed.status, shed.json()["code"]) == (503, "backpressure")
    assert still.body == b"kept"
    site.well()


def test_it_reaches_services_by_tcp_where_it_is_told_their_addresses(site: Site, tmp_path: Path) -> None:
    port = free_port()
    with (
        serve("mailbox", None, "--set", f"mailbox.oap_addr=127.0.0.1:{port}", *issuer(site)),
        serve(
            "omnigate", None, *NO_QUOTAS, "--set", f"omnigate.downstream.mailbox=oap://127.0.0.1:{port}", *issuer(site)
        ) as gateway,
    ):
        sent = ask(gateway, "POST", "/v1/mailbox/orders", b"x", site.operator)
        bad = ask(gateway, "POST", "/v1/mailbox/orders", b"x", site.operator[:-6] + "AAAAAA")
        left_out = ask(gateway, "PUT", "/v1/o", b"x", site.operator)
        wait_until(lambda: ask(gateway, "GET", "/readyz").json()["degraded"] == [])
        ready = ask(gateway, "GET", "/readyz")

    assert (sent.status, bad.status) == (200, 401)
    assert (left_out.status, left_out.json()["code"]) == (503, "not_ready")
    assert "omnigate.downstream.storage" in left_out.json()["detail"]
    assert ready.status == 200


def test_what_was_not_set_up_is_not_ready_and_holds_up_nothing_else(site: Site, tmp_path: Path) -> None:
    with serve("omnigate", tmp_path, *NO_QUOTAS, *issuer(site)) as gateway:
        answers = [ask(gateway, "POST", "/v1/mailbox/orders", b"x", site.operator) for _ in range(30)]
        ready = ask(gateway, "GET", "/readyz")

    assert {(answer.status, answer.json()["code"]) for answer in answers} == {(503, "not_ready")}
    assert "omnigate.downstream.mailbox" in answers[-1].json()["detail"]
    assert (ready.status, ready.json()["degraded"]) == (200, [])


def test_under_strict_boot_a_service_it_was_told_of_must_answer_and_one_it_was_not_need_not(tmp_path: Path) -> None:
    strict = ("--insecure-dev", "--set", "omnigate.strict_boot=true")
    told = ("--set", f"omnigate.downstream.mailbox=oap:{tmp_path / 'm.sock'}")
    refused = penstock("serve", "omnigate", "--ephemeral-ports", "--data-dir", str(tmp_path), *strict, *told)

    assert (refused.returncode, "svc-mailbox does not answer" in refused.stderr) == (1, True)
    with serve("omnigate", tmp_path, *strict) as gateway:
        assert ask(gateway, "GET", "/readyz").status == 200


@pytest.mark.parametrize(
    "given", [{"mailbox": "http://127.0.0.1:1"}, {"storage": "oap://127.0.0.1"}, {"passport": "oap:relative"}]
)
def test_a_place_that_is_none_is_refused_at_the_start(given: dict[str, Any]) -> None:
    ((service, place),) = given.items()
    refused = penstock("serve", "omnigate", "--ephemeral-ports", "--set", f"omnigate.downstream.{service}={place}")

    assert refused.returncode == 2
    assert f"omnigate.downstream.{service}" in refused.stderr
    assert "oap:/socket or oap://host:port" in refused.stderr


def issuer(site: Site) -> tuple[str, str]:
    """Name whom to believe."""
    return "--set", f"capability.issuer=http://127.0.0.1:{site.behind['passport'].port('passport')}"
