"""Tokens for workers on the command line and in the SDK: issued in one line, explained, listed, and used."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from penstock.cli.token_words import moment
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


def test_people_read_dates_and_lines_and_programs_read_numbers(cli) -> None:
    issued = cli("token", "issue", "--for", "worker", "--topic", "pics/").strip()
    narrowed = cli("token", "attenuate", issued, "--caveat", "budget.reqs=5").strip()
    inspected, verified = cli("token", "inspect", narrowed), cli("token", "verify", narrowed, "--aud", "svc-mailbox")

    for said in (inspected, verified):
        assert re.search(r"^issued +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$", said, re.MULTILINE)
        assert re.search(r"^expires +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(in 1[45]m[^)]*\)$", said, re.MULTILINE)
        assert not re.search(r"[{}\[\]]|\b\d{10}\b", said)
    assert re.search(r"^narrowed 1 +budget.reqs=5$", inspected, re.MULTILINE)
    assert verified.startswith("ok ")
    assert json.loads(cli("token", "inspect", narrowed, "--json"))["exp"] > 1_700_000_000
    assert json.loads(cli("token", "verify", narrowed, "--json"))["claims"]["exp"] > 1_700_000_000


def test_a_topic_that_a_request_cannot_have_is_explained_as_the_node_judges_it(cli, tmp_path: Path) -> None:
    token = cli("token", "issue", "--for", "worker", "--topic", "pics", "--store", "get").strip()
    narrowed = cli("token", "attenuate", token, "--caveat", "topic=pics/new").strip()
    explained = cli("token", "explain", narrowed, "--against", "get", code=1)
    (tmp_path / "narrowed").write_text(narrowed)
    (tmp_path / "narrowed").chmod(0o600)
    address = cli("put", __file__).strip()
    judged = cli("get", address, "--token-file", str(tmp_path / "narrowed"), code=1)

    assert "a request of this kind has no topic" in explained
    assert "a request of this kind has no topic" in judged
    assert "allowed" in cli("token", "explain", narrowed, "--against", "recv pics/new")


def test_a_time_that_no_calendar_has_stays_a_number() -> None:
    assert moment(10**15) == "1000000000000000 s after 1970"


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
    assert re.search(rf"(?m)^resizer +in .* good +{told['tid']} +svc-mailbox, svc-storage", listed)
    cli("token", "revoke", "--tid", told["tid"])
    assert told["tid"] not in cli("token", "list")
    assert "revoked" in next(line for line in cli("token", "list", "--all").splitlines() if told["tid"] in line)


def test_what_does_not_fit_together_is_a_sentence(cli) -> None:
    issue = ("token", "issue", "--subject", "x")

    assert "needs the --topic" in cli(*issue, "--for", "worker", code=2)
    assert "go with --for worker" in cli(*issue, "--topic", "a", "--audience", "svc-mailbox", code=2)
    worker = (*issue, "--for", "worker", "--topic", "a")
    assert "--store takes get, put or get,put" in cli(*worker, "--store", "delete", code=2)
    assert "a producer sends anyway" in cli(*issue, "--for", "producer", "--topic", "a", "--send", code=2)
    assert "--audience says" in cli(*issue, code=2)
    assert "is no request" in cli("token", "explain", _some(cli), "--against", "fly", code=2)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("--for", "worker", "--topic", "a", "--caveat", "op=send"),
            "op=recv,ack,nack and op=send have nothing in common",
        ),
        (("--for", "worker", "--topic", "a", "--caveat", "topic=b"), "topic=a and topic=b have nothing in common"),
        (
            ("--for", "worker", "--topic", "a", "--store", "get", "--caveat", "op=recv"),
            "could do nothing at svc-storage",
        ),
        (
            ("--audience", "svc-mailbox", "--caveat", "op=recv", "--caveat", "op=send"),
            "could do nothing at any service",
        ),
    ],
)
def test_a_token_that_could_do_nothing_is_refused(cli, words: tuple[str, ...], told: str) -> None:
    assert told in cli("token", "issue", "--subject", "x", *words, code=2)


@pytest.mark.parametrize(
    "words",
    [
        ("--for", "worker", "--topic", "a/", "--caveat", "topic=a/b"),
        ("--for", "worker", "--topic", "a", "--caveat", "op=recv,send"),
        ("--audience", "svc-mailbox", "--caveat", "op=*", "--caveat", "op=send"),
        ("--audience", "svc-mailbox", "--audience", "svc-storage", "--caveat", "svc-mailbox:op=recv", "--caveat",
         "svc-storage:op=get"),
    ],
)  # fmt: skip
def test_a_token_that_is_only_narrowed_is_issued(cli, words: tuple[str, ...]) -> None:
    assert cli("token", "issue", "--subject", "x", *words).startswith("psp1_")


def test_a_producers_token_sends_to_its_topic_and_does_nothing_else(cli) -> None:
    words = ("--subject", "shop", "--for", "producer", "--topic", "sales/", "--store", "put", "--json")
    told = json.loads(cli("token", "issue", *words))

    assert told["caveats"] == ["svc-mailbox:op=send", "svc-mailbox:topic=sales/", "svc-storage:op=put"]
    explain = ("token", "explain", told["token"], "--against")
    assert "verdict   allowed" in cli(*explain, "send sales/1")
    assert "verdict   allowed" in cli(*explain, "put")
    assert "refused" in cli(*explain, "recv sales/1", code=1)
    assert "refused" in cli(*explain, "send other", code=1)


def test_revoking_says_what_was_revoked_and_how_many_tokens_that_reached(cli) -> None:
    for _ in range(2):
        cli("token", "issue", "--subject", "leaver", "--audience", "svc-mailbox")

    told = cli("token", "revoke", "--subject-ref", "leaver")
    assert told.startswith("revoked subject leaver: 2 tokens no longer good; the epoch is ")


def test_a_revocation_that_reaches_no_token_says_so_fails_and_is_recorded(cli) -> None:
    told = cli("token", "revoke", "--subject-ref", "nobody-like-this", code=1)
    as_json = json.loads(cli("token", "revoke", "--subject-ref", "nobody-like-that", "--json", code=1).splitlines()[0])

    assert "no good token is known of subject nobody-like-this, so nothing changed for anybody" in told
    assert "revoked" not in told.replace("revocation", "")
    assert (as_json["revoked"], as_json["tokens"]) == ({"subject_ref": "nobody-like-that"}, 0)
    # Each of the two revocations raised the epoch.
    assert f"the epoch is {as_json['current_epoch'] - 1} now" in told


def test_every_option_of_revoke_says_what_it_revokes(cli) -> None:
    shown = " ".join(cli("token", "revoke", "--help").split())

    assert "one more than the current epoch" in shown
    assert "every token that was issued to this --subject" in shown


def test_the_tokens_of_a_node_are_listed_and_counted_by_its_url(cli, node: NodeProcess, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{node.port('omnigate')}"
    secret = tmp_path / "operator.token"
    secret.write_text(node.ready["token"])
    told = json.loads(cli("token", "issue", "--subject", "afar", "--audience", "svc-mailbox", "--json"))
    listed = cli("token", "list", "--url", url, "--token-file", str(secret))
    by_hand = cli("token", "revoke", "--tid", told["tid"], "--url", url, "--token-file", str(secret))

    assert re.search(rf"(?m)^afar +in .*{told['tid']} +svc-mailbox", listed)
    assert ": 1 token no longer good; the epoch is " in by_hand
    assert told["tid"] not in cli("token", "list", "--url", url, "--token-file", str(secret))


def test_a_worker_may_not_list_tokens_and_is_told_so(cli, tmp_path: Path) -> None:
    secret = tmp_path / "worker.token"
    secret.write_text(cli("token", "issue", "--subject", "w", "--for", "worker", "--topic", "a/"))

    assert "svc-passport" in cli("token", "list", "--token-file", str(secret), code=1)


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


def test_every_topic_and_operation_that_is_named_is_allowed_and_no_other(cli, tmp_path: Path) -> None:
    worker = ("token", "issue", "--for", "worker", "--subject", "both")
    token = cli(*worker, "--topic", "left", "--topic", "right/", "--store", "get", "--store", "put").strip()
    file = tmp_path / "token"
    file.write_text(token)
    as_worker = ("--token-file", str(file))

    for topic in ("left", "left/x", "left.x", "right/x"):
        assert "nothing there" in cli("recv", topic, *as_worker)
        assert "allowed" in cli("token", "explain", token, "--against", f"recv {topic}")
    for topic in ("leftx", "right", "other"):
        assert f"This needs topic={topic}" in cli("recv", topic, *as_worker, code=1)
        assert "refused" in cli("token", "explain", token, "--against", f"recv {topic}", code=1)
    assert "allowed" in cli("token", "explain", token, "--against", "get")
    assert "allowed" in cli("token", "explain", token, "--against", "put")
    topics = "topics    left and what goes on after it with / : or . or all below right/"
    assert topics in cli("token", "explain", token)


def test_an_empty_topic_among_several_is_refused(cli) -> None:
    assert "topic is a topic" in cli("token", "issue", "--for", "worker", "--topic", "a", "--topic", "", code=2)


def test_the_subject_of_a_role_is_the_roles_name_unless_one_is_said(cli) -> None:
    token = cli("token", "issue", "--for", "producer", "--topic", "a").strip()

    assert "subject   producer" in cli("token", "explain", token)
    refused = cli("token", "issue", "--audience", "svc-mailbox", "--caveat", "op=recv", code=2)
    assert "--subject says whom the token is for" in refused


def test_a_token_in_a_file_is_read_by_its_option_and_named_where_a_token_is_meant(cli, tmp_path: Path) -> None:
    file = tmp_path / "w.token"
    file.write_text(cli("token", "issue", "--for", "worker", "--topic", "a", "--subject", "filed"))

    assert "subject   filed" in cli("token", "explain", "--file", str(file))
    assert f"is a file: say --file {file}" in cli("token", "explain", str(file), code=2)
    assert "one of them" in cli("token", "explain", code=2)
    assert "nowhere cannot be read: No such file" in cli(
        "token", "explain", "--file", str(tmp_path / "nowhere"), code=2
    )


def test_the_list_has_a_heading_and_marks_the_tokens_that_the_node_gave_itself(cli) -> None:
    cli("token", "issue", "--for", "worker", "--topic", "a", "--subject", "mine")
    own = ("--subject", "svc-interop", "--tenant", "svc-interop", "--class", "internal")
    cli("token", "issue", *own, "--audience", "svc-mailbox", "--caveat", "op=recv")

    listed = cli("token", "list").splitlines()

    # What has no room beside the others stands below its row, by name.
    assert listed[0].split()[:4] == ["subject", "expires", "state", "tid"]
    # A subject that is long beside the others has a line to itself.
    assert any(line.startswith("svc-interop (the node's own)") for line in listed), listed
    assert any(re.match(r"mine( +in |$)", line) for line in listed), listed


def test_the_key_is_rotated_and_everything_revoked_by_a_command(tmp_path: Path) -> None:
    with NodeProcess(data_dir=tmp_path / "data") as node:
        env = {**os.environ, "PENSTOCK_DATA_DIR": node.ready["data_dir"]}

        def told(*words: str, code: int = 0) -> str:
            done = penstock("token", *words, env=env)
            assert done.returncode == code, done.stderr
            return done.stdout + done.stderr

        first = told("issue", "--for", "worker", "--topic", "a").strip()
        kid = json.loads(told("rotate", "--json"))["kid"]
        second = told("issue", "--for", "worker", "--topic", "a").strip()

        assert json.loads(told("inspect", first, "--json"))["kid"] != kid
        assert json.loads(told("inspect", second, "--json"))["kid"] == kid
        assert _verdict(told("verify", first)) == "true"
        assert "say --yes" in told("revoke", "--all", code=2)
        assert _verdict(told("verify", first)) == "true"
        assert "revoked every token issued so far" in told("revoke", "--all", "--yes")
        assert _verdict(told("verify", first, code=1)) == "false"
        assert _verdict(told("verify", second, code=1)) == "false"
        # The operator goes on with a token of its own that was made in the same step.
        assert told("issue", "--for", "worker", "--topic", "a")


def _verdict(shown: str) -> str:
    return next(line.split()[1] for line in shown.splitlines() if line.startswith("ok "))
