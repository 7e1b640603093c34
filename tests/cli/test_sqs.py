"""`penstock sqs`: access keys are made where they are used, at the bridge and at the gateway."""

from __future__ import annotations

import json
import shlex

import pytest

from tests.acceptance.node_process import NodeProcess, penstock
from tests.cli.conftest import SecureNode, outside


def variables(line: str) -> dict[str, str]:
    """Read what `penstock sqs env` exports."""
    return dict(word.partition("=")[::2] for word in shlex.split(line.removeprefix("export ")))


def test_by_the_url_of_a_gateway_clients_are_pointed_at_the_gateway(secure: SecureNode) -> None:
    told = variables(penstock("sqs", "env", *secure.options, env=outside()).stdout)
    at_the_bridge = variables(penstock("sqs", "env", "--data-dir", secure.node.ready["data_dir"]).stdout)

    assert told["AWS_ENDPOINT_URL_SQS"] == secure.url
    assert told["AWS_CA_BUNDLE"] == str(secure.ca), "an AWS client trusts the system's authorities alone"
    assert told["AWS_SECRET_ACCESS_KEY"] == at_the_bridge["AWS_SECRET_ACCESS_KEY"]
    assert at_the_bridge["AWS_ENDPOINT_URL_SQS"] == f"http://127.0.0.1:{secure.node.port('interop')}"
    assert "AWS_CA_BUNDLE" not in at_the_bridge


def test_keys_are_made_listed_and_revoked_through_the_gateway(secure: SecureNode) -> None:
    def sqs(*words: str) -> str:
        return penstock("sqs", "key", *words, *secure.options, env=outside()).stdout

    made = json.loads(sqs("create", "--topic", "sqs/orders", "--op", "recv", "--json"))["access_key_id"]

    assert f"{made}  -  sqs/orders  recv\n" in sqs("list")
    assert sqs("revoke", made) == f"{made} is refused from now on\n"
    assert made not in sqs("list")


def test_a_topic_that_no_queue_can_have_names_the_one_that_was_meant(node: NodeProcess) -> None:
    done = penstock("sqs", "key", "create", "--topic", "orders", "--data-dir", node.ready["data_dir"])

    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "did you mean sqs/orders?" in done.stderr


@pytest.mark.parametrize("words", [("sqs", "env"), ("sqs", "key", "list")], ids=" ".join)
def test_a_node_that_serves_no_sqs_says_so_and_how_it_would(words: tuple[str, ...]) -> None:
    with NodeProcess("--set", "interop.sqs.enabled=off") as node:
        where = ("--url", f"http://127.0.0.1:{node.port('omnigate')}")
        done = penstock(*words, *where, env=outside(PENSTOCK_TOKEN=node.ready["token"]))

    assert done.returncode == 1
    assert "This URL serves no SQS." in done.stderr
    assert 'interop.sqs.enabled = "on"' in done.stderr
