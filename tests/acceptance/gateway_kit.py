"""A node with routes, views and a policy of an operator's own, and how to ask its gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.node_process import Answer, NodeProcess
from tests.acceptance.upstream_process import Upstream

WITHIN_S = 60.0
SLOTS = 128
OPTIONAL = 'required = false, fallback = "default", default = "[]"'


def ask(
    node: NodeProcess, method: str, path: str, body: bytes | None = None, *, token: str | None = None, **fields: str
) -> Answer:
    """Ask the gateway; the operator's token unless another, or none (""), is given."""
    token = node.ready["token"] if token is None else token
    headers = {name.replace("_", "-"): value for name, value in fields.items()}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    connection = node.connect("omnigate")
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def issue(node: NodeProcess, *caveats: str, audience: str = "omnigate", **fields: Any) -> str:
    """Mint through the gateway."""
    asked = {"subject_ref": "ada", "audience": audience, "caveats": list(caveats), **fields}
    answer = ask(node, "POST", "/v1/passport/issue", json.dumps(asked).encode())
    assert answer.status == 200, answer.body
    return str(answer.json()["token"])


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    """One upstream for all."""
    with Upstream() as running:
        yield running


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[NodeProcess]:
    """One node for all, with routes and views of an operator's own."""
    directory = tmp_path_factory.mktemp("node")
    config = directory / "penstock.toml"
    config.write_text(
        f"""
[omnigate]
max_conns = 2048
max_conns_per_ip = 2048
default_deadline = "60s"
downstream.request_timeout = "60s"
fair_queue.max_inflight = {SLOTS}
policy = "{directory / "policy.toml"}"
[omnigate.quotas]
default_rps = 0
per_ip_rps = 0
per_cap_rps = 0
[[omnigate.routes]]
prefix = "/shop"
upstream = ["{upstream.url}"]
strip_prefix = true
[[omnigate.routes]]
prefix = "/known"
upstream = ["{upstream.url}"]
require = ["op=get"]
forward = "identity"
[[omnigate.routes]]
prefix = "/narrow"
upstream = ["{upstream.url}"]
require = ["op=get"]
forward = "token"
[[omnigate.views]]
name = "home"
parts = [
  {{ name = "stats", source = "topic", target = "{{topic}}", required = false }},
  {{ name = "feed", target = "{upstream.url}/feed", timeout = "1m" }},
]
[[omnigate.views]]
name = "late"
parts = [{{ name = "slow", target = "{upstream.url}/stall", timeout = "1m" }}]
[[omnigate.views]]
name = "patient"
parts = [
  {{ name = "slow", target = "{upstream.url}/stall", timeout = "200ms", {OPTIONAL} }},
  {{ name = "feed", target = "{upstream.url}/feed", timeout = "1m" }},
]
""",
        encoding="ascii",
    )
    (directory / "policy.toml").write_text(POLICY, encoding="ascii")
    with NodeProcess("--config", str(config), "--set", "node.chaos=true", data_dir=directory / "data") as running:
        running.policy = directory / "policy.toml"  # type: ignore[attr-defined]
        yield running


POLICY = """
[[rules]]
action = "deny"
path = "/shop/embargoed"
reason = "legal"
[[rules]]
action = "allow"
path = "/v1"
"""
