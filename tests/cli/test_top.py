"""`penstock top`: its totals are those of the node, and not those of the topics that are left."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.node_told import NodeTold, lately
from penstock.cli.tables import say_totals, topics
from penstock.contracts.mailbox import TopicStats
from tests.acceptance.node_process import NodeProcess, penstock

LEFT = TopicStats("left", 3, 2, 1, 4, 60, 9.0, 4.0, 0.0, 2.0)
SOON_S = 60.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess(data_dir=tmp_path / "node") as running:
        yield running


def top(node: NodeProcess, *options: str, way: str = "here") -> str:
    where = ["--data-dir", node.ready["data_dir"]]
    if way == "gateway":
        token_file = Path(node.ready["data_dir"], "token-of-the-test")
        token_file.write_text(node.ready["token"])
        where = ["--url", f"http://127.0.0.1:{node.port('omnigate')}", "--token-file", str(token_file)]
    done = penstock("top", *options, *where)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def drain_one(node: NodeProcess, count: int) -> None:
    """Send so many to a topic and acknowledge all of them."""
    sends = [{"topic": "drained", "payload": number} for number in range(count)]
    node.ask("mailbox", "POST", "/v1/send/batch", {"messages": sends}, token=True)
    asked = {"topic": "drained", "max_messages": count}
    got = node.ask("mailbox", "POST", "/v1/recv", asked, token=True).json()["messages"]
    acks = [{"msg_id": each["msg_id"], "receipt": each["receipt"]} for each in got]
    done = node.ask("mailbox", "POST", "/v1/ack", {"acks": acks}, token=True).json()["results"]
    assert [each["ok"] for each in done] == [True] * count


def until_shown(node: NodeProcess, way: str) -> dict[str, Any]:
    """Look until the node has measured what was acked and has forgotten the topic."""
    end = time.monotonic() + SOON_S
    while True:
        shown: dict[str, Any] = json.loads(top(node, "--json", way=way))
        if shown["node"]["ack_rate"] and not shown["topics"]:
            return shown
        assert time.monotonic() < end, shown


@pytest.mark.parametrize("way", ["here", "gateway"])
def test_what_drained_topics_did_is_in_the_totals_and_an_empty_node_has_a_document(node: NodeProcess, way: str) -> None:
    empty = json.loads(top(node, "--json", way=way))
    drain_one(node, 256)
    shown = until_shown(node, way)
    drawn = top(node, way=way)

    totals = {"topics": 0, "ready": 0, "inflight": 0, "delayed": 0, "dlq": 0}
    assert (empty["node"]["ready"], empty["totals"], empty["topics"]) == (True, totals, [])
    assert (shown["node"]["send_rate"] > 0, shown["totals"]) == (True, totals)
    assert "node: ready   0 topics, " in drawn
    assert " 0 sent/s, 0 acked/s" not in drawn


def test_the_first_lines_say_what_the_node_told_or_whose_rates_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    say_totals([LEFT], NodeTold(True, 14.0, 9.0))
    say_totals([LEFT], NodeTold(False, None, None))
    say_totals([], None)

    assert capsys.readouterr().out.splitlines() == [
        "node: ready   1 topic, 14 sent/s, 9 acked/s",
        "3 waiting, 2 in flight, 1 delayed, 4 dead",
        "node: not ready   1 topic, in them 4 sent/s, 2 acked/s",
        "3 waiting, 2 in flight, 1 delayed, 4 dead",
        "node: ?   0 topics, in them 0 sent/s, 0 acked/s",
        "0 waiting, 0 in flight, 0 delayed, 0 dead",
    ]


def test_rates_are_the_mean_of_the_last_minute_as_far_as_it_was_measured() -> None:
    assert lately([100.0] * 240 + [None] * 50 + [1.0, 2.0, 3.0]) == pytest.approx((7 * 100.0 + 6.0) / 10)
    assert lately([5.0, None, *[0.0] * 60]) == 0.0
    assert lately([None]) is None
    assert lately([]) is None


def test_a_topic_in_which_nothing_waits_has_no_oldest_message(capsys: pytest.CaptureFixture[str]) -> None:
    topics([LEFT, TopicStats("dead", 0, 0, 0, 1, 1, 0.0)])
    heading, left, dead = (line.split() for line in capsys.readouterr().out.splitlines())

    assert heading[6] == "oldest"
    assert (left[7], dead[7]) == ("9.0s", "-")
