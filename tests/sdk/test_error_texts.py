"""What a person reads when a call fails: what is wrong, where, and what to check."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import (
    DownstreamUnavailable,
    Forbidden,
    Malformed,
    NoNode,
    NotFound,
    NoToken,
    OverLimit,
    connect,
    new_message,
    sync,
)
from penstock.contracts import mailbox as m
from penstock.kernel.inventory import Inventory
from penstock.sdk.calling import Caller
from penstock.sdk.http_mailbox import HttpMailbox
from penstock.sdk.remote_place import RemotePlace
from penstock.sdk.values import checked
from tests.acceptance.node_process import NodeProcess, free_port
from tests.net.calls.peers import Peer, Script, answer, says

URL = "https://queue.example.org:17999"


def remote(peer: Peer) -> HttpMailbox:
    return HttpMailbox(Caller("mailbox", RemotePlace(URL), Inventory("client"), dial=peer.dial))


async def refused(script: Script) -> str:
    """Return what is said about an answer."""
    mailbox = remote(Peer(script))
    try:
        with pytest.raises((DownstreamUnavailable, NotFound)) as caught:
            await mailbox.topic(m.GetTopic("t"))
    finally:
        await mailbox._caller.close()
    return str(caught.value)


class Nobody(Peer):
    """A host on which nobody listens."""

    async def dial(self, origin, connection) -> None:
        raise ConnectionRefusedError(111, "Connection refused")


async def test_a_url_at_which_nobody_listens_is_named_with_what_to_check() -> None:
    mailbox = remote(Nobody())
    with pytest.raises(DownstreamUnavailable) as caught:
        await mailbox.topic(m.GetTopic("t"))
    await mailbox._caller.close()

    said = str(caught.value)
    assert said.startswith(f"mailbox at {URL} is out of reach: Connection refused.")
    assert "Check that the node runs, and that host and port are those of its gateway" in said


@pytest.mark.parametrize(
    "script",
    [
        says(answer(b"<html>Not found</html>", "404 Not Found")),
        says(answer(b"<html>Welcome</html>")),
        says(answer(b"[]", "400 Bad Request")),
    ],
)
async def test_what_answers_and_is_no_node_is_called_so(script: Script) -> None:
    said = await refused(script)

    assert "This is not a penstock node" in said
    assert "Give the URL of the node's gateway" in said
    assert URL in said


async def test_the_url_of_another_service_is_told_apart(node: NodeProcess) -> None:
    url = f"http://127.0.0.1:{node.port('mailbox')}"
    with sync.connect(url, token=node.ready["token"]) as client, pytest.raises(NotFound) as caught:
        client.storage.put(b"x")

    assert "Give the URL of the node's gateway: host and port" in str(caught.value)


async def test_a_directory_without_a_node_is_named(tmp_path: Path) -> None:
    for directory, what in ((tmp_path, "No node is running in"), (tmp_path / "nod", "no directory,")):
        async with connect(directory) as client:
            with pytest.raises(NoNode) as caught:
                await client.mailbox.topics()

        assert (what in str(caught.value), str(directory) in str(caught.value)) == (True, True)


def test_the_hint_of_an_error_of_our_own_is_read_too() -> None:
    with pytest.raises(NoToken) as caught:
        connect(URL, token="Bearer psp1_x")

    assert str(caught.value) == "The token begins with the word Bearer. Give what comes after it."


def test_a_misspelt_setting_is_answered_with_the_one_that_was_meant() -> None:
    with pytest.raises(Malformed, match=r"no field max_atempts\. Did you mean max_attempts\?"):
        checked(m.TopicSettings, max_atempts=3)


# --- what is too large


@pytest.fixture
def client(node: NodeProcess) -> Iterator[sync.SyncClient]:
    with sync.connect(f"http://127.0.0.1:{node.port('omnigate')}", token=node.ready["token"]) as opened:
        yield opened


def test_a_large_message_is_told_its_own_size_and_the_limit_of_messages(client: sync.SyncClient) -> None:
    with pytest.raises(OverLimit) as caught:
        client.mailbox.send("large", b"x" * 1_500_000)

    said = str(caught.value)
    assert said.startswith("The payload of 1.4 MiB is over the limit of 704 KiB (mailbox.max_payload_bytes).")
    assert "send its address" in said
    assert client.mailbox.send("large", b"x" * (704 << 10)).msg_id, "and that much is taken"
    client.mailbox.delete_topic("large")


def test_a_large_batch_is_told_to_be_sent_in_parts(client: sync.SyncClient) -> None:
    with pytest.raises(OverLimit, match=r"batch of 3 messages with 1.4 MiB of payload.*Send fewer at once"):
        client.mailbox.send_batch([new_message("large", b"x" * 500_000) for _ in range(3)])


def test_a_large_object_is_told_which_settings_to_raise(client: sync.SyncClient) -> None:
    with pytest.raises(OverLimit, match=r"omnigate\.put_max_bytes.*Raise omnigate\.put_max_bytes and storage\.put_max"):
        client.storage.put(b"x" * (65 << 20))


@pytest.mark.parametrize("service", ["mailbox", "omnigate"])
def test_a_large_body_is_refused_with_the_whole_name_of_its_setting(node: NodeProcess, service: str) -> None:
    body = {"topic": "t", "payload": "x" * 2_000_000}
    told = node.ask(service, "POST", "/v1/send", body, token=True).json()

    assert told["setting"] == f"{service}.limits.max_body_bytes"
    assert f"({told['setting']})" in told["detail"]
    assert told["hint"].startswith("A message holds 704 KiB at most")
    assert "raise the limit" not in told["hint"]


# --- the operator's own


def test_a_worker_is_told_that_only_the_operator_may_ask_about_the_node(
    client: sync.SyncClient, node: NodeProcess
) -> None:
    tokens = (
        client.passport.worker_token("worker", "t").token,
        client.passport.issue("ada", "omnigate", caveats=["op=admin"]).token,
    )
    for token in tokens:
        connection = node.connect("omnigate")
        connection.request("GET", "/v1/node/status", headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        told = response.read().decode()
        connection.close()

        assert response.status == Forbidden.status
        assert "only the operator's token will do" in told


def test_nobody_listens_at_a_port_of_this_machine() -> None:
    with sync.connect(f"http://127.0.0.1:{free_port()}") as client, pytest.raises(DownstreamUnavailable) as caught:
        client.mailbox.topics()

    assert "is out of reach: Connection refused. Check that the node runs" in str(caught.value)
