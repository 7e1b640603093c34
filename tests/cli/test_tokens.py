"""Tokens for workers on the command line and in the SDK: issued in one line, explained, listed, and used."""

from __future__ import annotations

import json
import os

import pytest

from penstock.client import Client, connect
from penstock.kernel.errors import Forbidden
from tests.acceptance.node_process import NodeProcess, penstock


@pytest.fixture
def cli(node: NodeProcess):
    def run(*words: str, code: int = 0) -> str:
        done = penstock(*words, env={**os.environ, "PENSTOCK_DATA_DIR": node.ready["data_dir"]})
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    return run


def test_a_workers_token_is_issued_explained_and_listed(cli) -> None:
    told = json.loads(
        cli("token", "issue", "--subject", "resizer", "--for", "worker", "--topic", "pics/", "--store", "get", "--json")
    )
    listed = cli("token", "list")

    assert told["caveats"] == ["svc-mailbox:op=recv,ack,nack", "svc-mailbox:topic=pics/", "svc-storage:op=get"]
    assert "verdict   allowed" in cli("token", "explain", told["token"], "--against", "recv pics/1")
    assert "verdict   allowed" in cli("token", "explain", told["token"], "--against", "get")
    refused = cli("token", "explain", told["token"], "--against", "send pics/1", code=1)
    assert "refused: This needs op=send; the token allows svc-mailbox:op=recv,ack,nack." in refused
    assert f"{told['tid']}  resizer  svc-mailbox,svc-storage" in listed
    cli("token", "revoke", "--tid", told["tid"])
    assert told["tid"] not in cli("token", "list")
    assert "revoked" in next(line for line in cli("token", "list", "--all").splitlines() if told["tid"] in line)


def test_what_does_not_fit_together_is_a_sentence(cli) -> None:
    issue = ("token", "issue", "--subject", "x")

    assert "needs the --topic" in cli(*issue, "--for", "worker", code=2)
    assert "go with --for worker" in cli(*issue, "--topic", "a", "--audience", "svc-mailbox", code=2)
    assert "--audience says" in cli(*issue, code=2)
    assert "is no request" in cli("token", "explain", _some(cli), "--against", "fly", code=2)


def _some(cli) -> str:
    return cli("token", "issue", "--subject", "x", "--audience", "svc-mailbox").strip()


def test_whoami_says_whose_token_is_used(cli) -> None:
    said = cli("whoami")

    assert "subject   operator" in said
    assert "expires   " in said


@pytest.mark.real_loop(watchdog_s=170)
async def test_a_worker_with_its_token_takes_messages_and_objects_and_nothing_else(node: NodeProcess) -> None:
    async with connect(node.ready["data_dir"]) as operator:
        issued = await operator.passport.worker_token("resizer", "shots/", store=("get",))
        stored = await operator.storage.put(b"pixels")
        await operator.mailbox.send("shots/1", stored.address)

    assert issued.token not in repr(issued)
    assert issued.tid in repr(issued)
    async with connect(node.ready["data_dir"], token=issued.token) as worker:
        [message] = await worker.mailbox.recv("shots/1", wait_ms=20_000, visibility_ms=60_000)
        assert await worker.storage.get(message.payload.decode()) == b"pixels"
        await worker.mailbox.ack(message)
        await _is_refused(worker)


async def _is_refused(worker: Client) -> None:
    for call in (worker.mailbox.send("shots/1", "x"), worker.mailbox.recv("other"), worker.storage.put(b"x")):
        with pytest.raises(Forbidden):
            await call
