"""SQS clients at the gateway's URL: signatures hold, who has a key is not held to quotas, receivers hold no slot."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from penstock.config import Sources, load
from penstock.node.build import Node
from penstock.node.services import schema
from penstock.testing import wait_until
from tests.acceptance.node_process import NodeProcess
from tests.foreign.sqs_client import by_query, client_of


def at_gateway(node: NodeProcess) -> dict[str, str]:
    """Say what a client has to know of the gateway."""
    return {**node.ready["sqs"], "endpoint": f"http://127.0.0.1:{node.port('omnigate')}"}


def test_one_url_serves_sqs_clients_in_both_protocols(node: NodeProcess):
    told = at_gateway(node)
    sqs = client_of(told)
    url = sqs.create_queue(QueueName="by-gateway")["QueueUrl"]
    sent = sqs.send_message(QueueUrl=url, MessageBody="höllo")
    got = by_query(told, "ReceiveMessage", QueueUrl=url, WaitTimeSeconds=20)
    elsewhere = client_of(node.ready["sqs"]).get_queue_url(QueueName="by-gateway")["QueueUrl"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=got["Messages"][0]["ReceiptHandle"])
    sqs.delete_queue(QueueUrl=url)

    assert got["Messages"][0]["MessageId"] == sent["MessageId"]
    # A client that is told a URL at the gateway goes on asking there.
    assert url == f"{told['endpoint']}/000000000000/by-gateway"
    assert elsewhere == f"{node.ready['sqs']['endpoint']}/000000000000/by-gateway"


def test_a_browser_at_the_root_is_still_told_what_the_port_is(node: NodeProcess):
    answer = node.ask("omnigate", "GET", "/")

    assert answer.status == 404
    assert "This port is omnigate" in answer.json()["detail"]


def test_who_signs_well_is_not_held_to_the_quotas_and_who_does_not_is():
    quotas = [f"omnigate.quotas.{name}=2" for name in ("per_ip_rps", "default_rps", "burst_rps")]
    with NodeProcess(*(word for said in quotas for word in ("--set", said))) as node:
        told = at_gateway(node)
        url = client_of(told).create_queue(QueueName="q")["QueueUrl"]
        sqs = client_of(told, tries=0)
        for number in range(30):
            sqs.send_message(QueueUrl=url, MessageBody=str(number))
        forger = client_of({**told, "secret_access_key": "obviously-not-it"}, tries=0)
        statuses = [_status(forger, url) for _ in range(30)]

    assert set(statuses) == {403, 429}


def _status(sqs, url: str) -> int:
    with pytest.raises(ClientError) as refused:
        sqs.send_message(QueueUrl=url, MessageBody="x")
    return int(refused.value.response["ResponseMetadata"]["HTTPStatusCode"])


def test_receivers_that_wait_hold_no_slot_of_the_gateway():
    fair = ("omnigate.fair_queue.max_inflight=2", "omnigate.fair_queue.adaptive=false")
    with NodeProcess(*(word for said in fair for word in ("--set", said))) as node:
        told = at_gateway(node)
        sqs = client_of(told)
        urls = [sqs.create_queue(QueueName=f"q{number}")["QueueUrl"] for number in range(4)]
        bodies: list[str] = []

        def receive(url: str) -> None:
            found = client_of(told).receive_message(QueueUrl=url, WaitTimeSeconds=20)
            bodies.extend(each["Body"] for each in found.get("Messages", ()))

        threads = [threading.Thread(target=receive, args=(url,)) for url in urls]
        for thread in threads:
            thread.start()
        wait_until(lambda: _parked(node) == len(urls))
        for url in urls:
            sqs.send_message(QueueUrl=url, MessageBody=url[-2:])
        for thread in threads:
            thread.join()

    assert sorted(bodies) == ["q0", "q1", "q2", "q3"]


def _parked(node: NodeProcess) -> int:
    lines = node.ask("admin", "GET", "/metrics", token=True).body.decode().splitlines()
    return sum(int(float(line.rpartition(" ")[2])) for line in lines if line.startswith("fq_parked"))


def test_a_policy_of_ones_own_has_to_allow_sqs_by_its_tag(tmp_path: Path):
    denying, allowing = tmp_path / "denying.toml", tmp_path / "allowing.toml"
    denying.write_text('[[rules]]\naction = "allow"\npath = "/v1"\n')
    allowing.write_text('[[rules]]\naction = "allow"\ntags = ["sqs"]\n')
    answers = []
    for bundle in (denying, allowing):
        with NodeProcess("--set", f"omnigate.policy={bundle}") as node:
            try:
                answers.append(client_of(at_gateway(node)).list_queues()["ResponseMetadata"]["HTTPStatusCode"])
            except ClientError as refused:
                answers.append(refused.response["ResponseMetadata"]["HTTPStatusCode"])

    assert answers == [403, 200]


@pytest.mark.parametrize(
    ("sets", "served"),
    [
        ((), True),
        (("interop.sqs.enabled=off",), False),
        (("omnigate.bind_addr=0.0.0.0:5306",), False),
        (("omnigate.bind_addr=0.0.0.0:5306", "interop.sqs.enabled=on"), True),
    ],
)
def test_the_gateway_serves_sqs_where_the_face_itself_would(sets: tuple[str, ...], served: bool):
    sources = Sources(sets=(*sets, "node.amnesia=true"))
    node = Node(load(schema(), sources), sources, token="psp1_not-a-real-token")
    node.forget()
    gateway = next(part for part in node.parts if part.name == "omnigate")

    paths = {(route.method, route.path) for route in gateway.routes if route.op == "sqs"}
    assert (("POST", "/") in paths) is served
    assert (("GET", "/000000000000/{queue}") in paths) is served
    assert ("GET", "/") not in paths
