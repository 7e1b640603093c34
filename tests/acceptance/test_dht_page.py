"""The operator's page can look up any key, not only those the node announces itself."""

from __future__ import annotations

from tests.acceptance.node_process import NodeProcess

KEY = "cd" * 32


def look_up(node: NodeProcess, key: str, *, token: bool = True) -> tuple[int, dict]:
    answer = node.ask("admin", "POST", "/panels/dht-records/find", {"row": key}, token=token)
    return answer.status, answer.json()


def test_any_key_can_be_looked_up_by_the_operator_alone(node: NodeProcess) -> None:
    nobody = look_up(node, KEY)
    made = node.ask("omnigate", "POST", "/v1/dht/provide", {"key": KEY, "addrs": ["tcp://a:1"]}, token=True)
    found = look_up(node, f"b3:{KEY}")

    assert (made.status, nobody[0], nobody[1]["rows"]) == (200, 200, [])
    assert found[1]["said"].startswith("1 provider,")
    assert [row["addrs"] for row in found[1]["rows"]] == ["tcp://a:1"]
    assert look_up(node, KEY, token=False)[0] == 401


def test_what_is_no_key_is_refused_with_a_sentence(node: NodeProcess) -> None:
    status, said = look_up(node, "no key")

    assert (status, said["detail"]) == (400, "A key is 64 hex digits, with or without b3: in front.")
