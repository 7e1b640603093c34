"""The page's delay of sends is that of every send, whichever door it came through, and of none that is long over."""

from __future__ import annotations

import base64
from typing import Any

from penstock.testing.waiting import wait_until
from tests.acceptance.gateway_kit import ask
from tests.acceptance.node_process import NodeProcess

BODY = {"topic": "orders", "payload_b64": base64.b64encode(b"hi").decode()}


def lines(node: NodeProcess) -> dict[str, list[float | None]]:
    answer = node.ask("admin", "GET", "/history?span=5m&series=send_p,sent", token=True)
    found: dict[str, list[float | None]] = answer.json()["series"]
    return found


def test_a_send_counts_once_through_each_door_and_an_idle_second_is_a_gap() -> None:
    with NodeProcess() as node:

        def post(service: str, path: str, body: Any) -> int:
            return node.ask(service, "POST", path, body, token=True).status

        def counted() -> float:
            return node.metric("send_seconds_count")

        assert post("mailbox", "/v1/send", BODY) == 200
        assert counted() == 1
        assert post("omnigate", "/v1/send", BODY) == 200
        assert counted() == 2
        assert post("omnigate", "/v1/send/batch", {"messages": [BODY, BODY]}) == 200
        assert counted() == 4
        assert ask(node, "POST", "/v1/mailbox/orders", b"raw").status == 200
        assert counted() == 5

        def told() -> bool:
            return any(lines(node).get("send_p99", []))

        wait_until(told)
        idle = len([value for value in lines(node)["sent"] if value is not None])
        wait_until(lambda: len([value for value in lines(node)["sent"] if value is not None]) > idle + 1)

        found = lines(node)
        assert found["sent"][-1] == 0.0
        assert found["send_p50"][-1] is None
        assert found["send_p99"][-1] is None
