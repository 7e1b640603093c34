"""A budget is spent once in a node, whichever of its services it is spent at, and through the gateway not twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.node_process import NodeProcess
from tests.acceptance.test_capabilities import issue


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess("--set", "capability.budgets=16", data_dir=tmp_path_factory.mktemp("node")) as running:
        yield running


def spend(node: NodeProcess, service: str, token: str) -> int:
    """Do one thing at a service as the holder of a token."""
    paths = {"mailbox": "/v1/send/orders", "omnigate": "/v1/mailbox/orders", "storage": "/o"}
    connection = node.connect(service)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/octet-stream"}
    try:
        connection.request("PUT" if service == "storage" else "POST", paths[service], b"x", headers)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("caveat", ["budget.reqs=3", "budget.bytes=3"])
def test_what_was_spent_at_one_service_is_spent_at_all(node: NodeProcess, caveat: str) -> None:
    audience = ["svc-mailbox", "svc-storage", "omnigate"]
    token = issue(node, audience=audience, caveats=["op=send,put", caveat])["token"]
    services = ("mailbox", "omnigate", "storage")

    assert [spend(node, service, token) // 100 for service in services] == [2, 2, 2]
    assert [spend(node, service, token) for service in services] == [429, 429, 429]


def test_the_issuer_counts_no_more_budgets_than_the_settings_say(node: NodeProcess) -> None:
    """Seventeen tokens with a budget each: the last finds the table full, at the issuer as anywhere."""
    tokens = [issue(node, audience="*", caveats=["op=revoke", "budget.reqs=9"])["token"] for _ in range(17)]
    said = []
    for token in tokens:
        connection = node.connect("passport")
        connection.request("POST", "/v1/passport/revoke", b'{"epoch":0}', {"Authorization": f"Bearer {token}"})
        said.append(connection.getresponse().status)
        connection.close()

    # One tenant has a share of the table, and never all of it.
    assert said[0] == 200
    assert said[-1] == 429
    assert 0 < said.count(200) < 16
