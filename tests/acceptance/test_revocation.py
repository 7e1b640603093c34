"""Whatever way a token is used, the first request after the answer to its revocation is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.gateway_kit import ask as ask_gateway
from tests.acceptance.node_process import NodeProcess, ask

SEND = {"topic": "orders", "payload_b64": "eA=="}


class Site:
    """A node, its operator, and what they do."""

    def __init__(self, node: NodeProcess, folder: Path) -> None:
        self.node = node
        self._token = folder / "operator.token"

    @property
    def operator(self) -> str:
        return self._token.read_text().strip()

    def call(self, service: str, method: str, path: str, body: Any = None, token: str | None = None) -> Any:
        connection = self.node.connect(service)
        try:
            return ask(connection, method, path, body, token)
        finally:
            connection.close()

    def issue(self, subject: str, *caveats: str, by: str | None = None) -> str:
        asked = {"subject_ref": subject, "tenant": "acme", "caveats": list(caveats), "ttl_s": 60}
        asked["audience"] = ["omnigate", "svc-mailbox", "svc-passport"]
        answer = self.call("passport", "POST", "/v1/passport/issue", asked, by or self.operator)
        assert answer.status == 200, answer.body
        return str(answer.json()["token"])

    def revoke(self, **target: Any) -> None:
        answer = self.call("passport", "POST", "/v1/passport/revoke", target, self.operator)
        assert answer.status == 200, answer.body

    def tid(self, token: str) -> str:
        verdict = self.call("passport", "POST", "/v1/passport/verify", {"token": token}).json()
        return str(verdict["claims"]["tid"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("node")
    with NodeProcess(data_dir=folder) as node:
        yield Site(node, folder)


def by_tid(site: Site, token: str) -> Callable[[], None]:
    tid = site.tid(token)
    return lambda: site.revoke(tid=tid)


def at_the_mailbox(site: Site) -> tuple[Callable[[], int], Callable[[], None]]:
    token = site.issue("ada", "op=send")
    return lambda: site.call("mailbox", "POST", "/v1/send", SEND, token).status, by_tid(site, token)


def at_the_gateway(site: Site) -> tuple[Callable[[], int], Callable[[], None]]:
    token = site.issue("ada", "op=send")
    return lambda: ask_gateway(site.node, "POST", "/v1/mailbox/orders", b"x", token=token).status, by_tid(site, token)


def with_what_was_issued(site: Site) -> tuple[Callable[[], int], Callable[[], None]]:
    boss = site.issue("boss", "op=issue,send")
    child = site.issue("clerk", "op=send", by=boss)
    return (
        lambda: site.call("mailbox", "POST", "/v1/send", SEND, child).status,
        lambda: site.revoke(subject_ref="boss"),
    )


def with_a_session_of_the_page(site: Site) -> tuple[Callable[[], int], Callable[[], None]]:
    connection = site.node.connect("admin")
    connection.request("POST", "/login", json.dumps({"token": site.operator}))
    answer = connection.getresponse()
    answer.read()
    cookie = str(answer.getheader("set-cookie")).partition(";")[0]
    connection.close()
    tid = site.tid(site.operator)

    def look() -> int:
        looking = site.node.connect("admin")
        try:
            looking.request("GET", "/inventory", headers={"Cookie": cookie})
            return looking.getresponse().status
        finally:
            looking.close()

    return look, lambda: site.revoke(tid=tid, force=True)


def with_the_operators_token(site: Site) -> tuple[Callable[[], int], Callable[[], None]]:
    token = site.operator
    tid = site.tid(token)
    return (
        lambda: site.call("admin", "GET", "/inventory", token=token).status,
        lambda: site.revoke(tid=tid, force=True),
    )


@pytest.mark.parametrize(
    "way",
    [at_the_mailbox, at_the_gateway, with_what_was_issued, with_a_session_of_the_page, with_the_operators_token],
    ids=lambda way: way.__name__,
)
def test_the_next_request_after_a_revocation_is_refused(site: Site, way: Callable[..., Any]) -> None:
    use, revoke = way(site)
    assert use() < 300
    revoke()

    assert use() == 401
