"""The content store in a whole node: passport's tokens, a kill between put and get, a node in amnesia mode."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from penstock.wire.ids import address_of
from tests.acceptance.node_process import Answer, NodeProcess
from tests.acceptance.test_capabilities import issue

DATA = b"kept by its digest " * 10_000
PATH = f"/o/{address_of(DATA)}"


def ask(node: NodeProcess, method: str, path: str, token: str | None, body: bytes | None = None) -> Answer:
    """Ask the store as the holder of a token."""
    connection = node.connect("storage")
    try:
        connection.request(method, path, body, {} if token is None else {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return Answer(answer.status, dict(answer.getheaders()), answer.read())
    finally:
        connection.close()


def reader(node: NodeProcess, **fields: Any) -> str:
    asked = {"audience": "svc-storage", "caveats": ["op=get", "method=GET"], **fields}
    return str(issue(node, **asked)["token"])


def test_object_outlives_a_kill_and_opens_only_to_a_token_that_covers_it(tmp_path: Path) -> None:
    with NodeProcess(data_dir=tmp_path) as node:
        assert ask(node, "PUT", "/o", None, DATA).status == 401
        assert ask(node, "PUT", "/o", node.ready["token"], DATA).status == 201
        node.signal(signal.SIGKILL)
        node.wait()
    with NodeProcess(data_dir=tmp_path) as node:
        token = reader(node)
        elsewhere = reader(node, caveats=["op=get", "route=/o/b3:00*"])
        assert ask(node, "GET", PATH, token).body == DATA
        assert ask(node, "HEAD", PATH, token).status == 403  # the method is not GET
        assert ask(node, "GET", PATH, elsewhere).status == 403
        assert ask(node, "PUT", "/o", token, b"more").status == 403
        assert ask(node, "GET", PATH, reader(node, audience="svc-mailbox")).status == 403
        assert node.metric('storage_objects{service="svc-storage"}') == 1
        node.signal(signal.SIGTERM)

        assert node.wait()[0] == 0
    assert not list((tmp_path / "objects" / "tmp").iterdir())


def test_node_that_keeps_nothing_stores_in_memory_within_its_quota() -> None:
    with NodeProcess("--set", "storage.max_bytes=100KiB", "--set", "storage.public_read=true") as node:
        token = node.ready["token"]

        assert ask(node, "PUT", "/o", token, b"small").status == 201
        assert ask(node, "GET", f"/o/{address_of(b'small')}", None).body == b"small"
        assert ask(node, "PUT", "/o", token, DATA).status == 507
