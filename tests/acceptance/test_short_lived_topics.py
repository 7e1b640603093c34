"""A topic that is filled and drained between two looks of the page leaves its rates in the history."""

from __future__ import annotations

from penstock.testing.waiting import wait_until
from tests.acceptance.node_process import NodeProcess

COUNT = 20


def flash(node: NodeProcess, topic: str) -> None:
    batch = {"messages": [{"topic": topic, "payload": "x"}] * COUNT}
    assert node.ask("mailbox", "POST", "/v1/send/batch", batch, token=True).status == 200
    asked = {"topic": topic, "max_messages": COUNT}
    got = node.ask("mailbox", "POST", "/v1/recv", asked, token=True).json()["messages"]
    acks = {"acks": [{"msg_id": each["msg_id"], "receipt": each["receipt"]} for each in got]}
    assert node.ask("mailbox", "POST", "/v1/ack", acks, token=True).json()["results"].count({"ok": True}) == COUNT


def test_topics_that_come_and_go_within_a_second_are_in_the_history() -> None:
    with NodeProcess() as node:

        def moved(direction: str, topic: str) -> float:
            """Add up the rates of all seconds: about as many messages as went that way."""
            asked = f"/history?span=5m&series=topic.{direction}:{topic}"
            lines = node.ask("admin", "GET", asked, token=True).json()["series"]
            return sum(value or 0.0 for line in lines.values() for value in line)

        topics = [f"flash{number}" for number in range(6)]
        for topic in topics:
            flash(node, topic)

        # Seconds are not exactly a second long.
        wait_until(lambda: all(moved("in", topic) > COUNT / 2 for topic in topics))
        wait_until(lambda: all(moved("out", topic) > COUNT / 2 for topic in topics))
        assert node.metric("messages_acked_total") == COUNT * len(topics)
