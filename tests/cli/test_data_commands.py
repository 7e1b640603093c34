"""Commands that ask a running node: what they print, what they exit with, and what they do to a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.client import TopicSettings, new_message, sync
from tests.acceptance.node_process import NodeProcess
from tests.cli.conftest import dead, rows

TIMEOUT_S = 80


def command(node: NodeProcess, *words: str) -> list[str]:
    return [sys.executable, "-m", "penstock.cli", *words, "--data-dir", node.ready["data_dir"]]


# --- objects


def test_a_put_object_is_announced_on_request_and_its_address_is_printed_first(cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"announced")
    code, address, _ = cli("put", str(tmp_path / "file"), "--provide")
    assert code == 0
    code, found, _ = cli("dht", "find", address.strip(), "--json")
    assert (code, len(json.loads(found)["providers"])) == (0, 1)

    (tmp_path / "other").write_bytes(b"kept to itself")
    _, address, _ = cli("put", str(tmp_path / "other"))
    _, found, _ = cli("dht", "find", address.strip(), "--json")
    assert json.loads(found)["providers"] == []


# --- messages


def test_a_message_goes_round(cli) -> None:
    code, sent, _ = cli("send", "cli/round", "--data", "hello", "--key", "k", "--attr", "a=1", "--attr", "b=x=y")
    assert code == 0
    code, out, _ = cli("recv", "cli/round", "--json")
    [got] = rows(out)
    assert (code, got["msg_id"], got["payload_b64"]) == (0, sent.strip(), "aGVsbG8=")
    assert (got["key"], got["attrs"]) == ("k", {"a": "1", "b": "x=y"})

    assert cli("extend", got["msg_id"], got["receipt"], "--visibility", "10m", "--json")[0] == 0
    assert cli("ack", got["msg_id"], got["receipt"]) == (0, "", "")
    code, out, err = cli("recv", "cli/round")
    assert (code, out, err) == (0, "", "nothing there; cli/round has no messages at all, waiting, leased or delayed\n")


def test_a_repeat_says_that_it_is_one(cli) -> None:
    first = cli("send", "cli/once", "--data", "x", "--idem-key", "i", "--json")
    second = cli("send", "cli/once", "--data", "x", "--idem-key", "i", "--json")

    assert [rows(out)[0]["duplicate"] for _, out, _ in (first, second)] == [False, True]
    code, out, err = cli("send", "cli/once", "--data", "y", "--idem-key", "i", "--json")
    assert (code, rows(out)[0]["error"]["code"]) == (1, "conflict")
    assert err.startswith("penstock: ")


def test_what_is_shown_is_acked_when_that_was_asked_for(cli) -> None:
    for n in range(3):
        cli("send", "cli/acked", "--data", f"number {n}")
    code, out, _ = cli("recv", "cli/acked", "--max", "10", "--ack")

    assert code == 0
    assert [f"number {n}" in out for n in range(3)] == [True] * 3
    assert "penstock ack" not in out, "nothing is left to ack"
    assert cli("topics", "cli/acked")[0] == 1


def test_a_nacked_message_becomes_a_dead_letter_and_comes_back(cli) -> None:
    cli("send", "cli/poison", "--data", "bad")
    for _ in range(5):
        [got] = rows(cli("recv", "cli/poison", "--json", "--wait", "20s")[1])
        code, out, _ = cli("nack", got["msg_id"], got["receipt"], "--reason", "no\x1b[31m good", "--delay", "0ms")
        assert code == 0
    assert out == f"{got['msg_id']} is a dead letter now\n"

    code, out, _ = cli("dlq", "list", "cli/poison")
    assert (code, "rejected:no\\x1b[31m good" in out) == (0, True)
    [entry] = rows(cli("dlq", "list", "cli/poison", "--json")[1])
    assert (entry["reason"], entry["attempts"]) == ("rejected:no\x1b[31m good", 5)
    assert "bad" in cli("dlq", "peek", "cli/poison")[1]
    assert cli("dlq", "redrive", "cli/poison", "--dry-run") == (0, "1 would go back\n", "")
    assert cli("dlq", "redrive", "cli/poison") == (0, "1 goes back\n", "")
    [back] = rows(cli("recv", "cli/poison", "--json", "--wait", "20s")[1])
    assert (back["attempt"], cli("ack", back["msg_id"], back["receipt"])[0]) == (1, 0)


def test_a_message_that_can_never_work_is_a_dead_letter_at_once(cli, capsys: pytest.CaptureFixture[str]) -> None:
    cli("send", "cli/never", "--data", "bad")
    [got] = rows(cli("recv", "cli/never", "--json", "--wait", "20s")[1])
    lease = (got["msg_id"], got["receipt"])
    with pytest.raises(SystemExit) as both:
        cli("nack", *lease, "--final", "--delay", "1s")
    refused = capsys.readouterr().err
    said = cli("nack", *lease, "--final", "--reason", "no such order")
    [entry] = rows(cli("dlq", "list", "cli/never", "--json")[1])

    assert (both.value.code, "--delay: not allowed with argument --final" in refused) == (2, True)
    assert said == (0, f"{got['msg_id']} is a dead letter now\n", "")
    assert (entry["reason"], entry["attempts"]) == ("rejected:no such order", 1)


def test_topics_are_counted(cli) -> None:
    cli("send", "cli/counted", "--data", "x", "--delay", "1h")
    code, out, _ = cli("topics")
    [row] = [row for row in rows(cli("topics", "--json")[1]) if row["topic"] == "cli/counted"]

    assert (code, "cli/counted" in out, row["delayed"]) == (0, True, 1)


def test_topic_is_set_up_shown_and_deleted(cli) -> None:
    assert cli("topic", "show", "cli/set")[0] == 1
    assert cli("topic", "set", "cli/set", "max_attempts=3", "dedup.window_s=60", "on_expiry=drop")[0] == 0
    code, out, _ = cli("topic", "set", "cli/set", "paused=true", "--json")
    settings = {"max_attempts": 3, "dedup": {"window_s": 60}, "on_expiry": "drop", "paused": True}
    assert (code, rows(out)[0]["settings"]) == (0, settings)
    assert cli("topic", "unset", "cli/set", "dedup", "paused")[1] == 'max_attempts = 3\non_expiry = "drop"\n'
    assert cli("topic", "set", "cli/set", "max_attempts")[0] == 2
    assert cli("topic", "set", "cli/set", "max_attempts=many")[0] == 2

    cli("send", "cli/set", "--data", "x")
    assert cli("topic", "delete", "cli/set", "--yes") == (0, "cli/set is gone, with 1 message\n", "")
    assert cli("topic", "show", "cli/set")[0] == 1


def test_a_topic_is_deleted_only_by_whoever_said_so(cli) -> None:
    cli("send", "cli/keep", "--data", "x")
    code, _, err = cli("topic", "delete", "cli/keep")
    told = "cli/keep with 1 message, 0 dead letters and its settings would be gone for good; say --yes to do it"
    assert (code, told in err) == (2, True)
    assert cli("topics", "cli/keep")[0] == 0

    assert cli("topic", "delete", "cli/keep", "--yes")[0] == 0
    assert cli("topics", "cli/keep")[0] == 1


def test_peek_reads_as_many_pages_as_it_takes_and_no_more_than_asked_for(node: NodeProcess, cli) -> None:
    with sync.connect(node.ready["data_dir"]) as client:
        client.mailbox.put_settings("cli/pages", TopicSettings(max_attempts=1))
        sent = []
        for count in (256, 144):
            results = client.mailbox.send_batch([new_message("cli/pages", str(number)) for number in range(count)])
            sent += [each.msg_id for each in results]

        def seen(*words: str) -> list[str]:
            return [row["msg_id"] for row in rows(cli(*words, "--json")[1])]

        assert seen("peek", "cli/pages") == sent[:10]
        assert seen("peek", "cli/pages", "--max", "257") == sent[:257]
        assert seen("peek", "cli/pages", "--limit", "390") == sent[:390]
        assert seen("peek", "cli/pages", "--max", "1000") == sent
        for each in [*client.mailbox.recv("cli/pages", max_messages=256), *client.mailbox.recv("cli/pages")]:
            client.mailbox.nack(each)
        assert seen("dlq", "peek", "cli/pages", "--max", "1000") == sent[:257]
        assert "\n0\n" in cli("dlq", "show", "cli/pages", sent[256])[1], "the payload of a letter behind a page"
        client.mailbox.delete_topic("cli/pages")


def test_peek_shows_one_message_by_its_id_and_says_its_state(cli) -> None:
    delayed = cli("send", "cli/one", "--data", "later", "--delay", "1h")[1].strip()
    (died,) = dead(cli, "cli/one", ["poison"])
    waiting = cli("send", "cli/one", "--data", "waits")[1].strip()

    for msg_id, state, payload in ((delayed, "delayed", "later"), (died, "dlq", "poison"), (waiting, "ready", "waits")):
        code, out, _ = cli("peek", "cli/one", "--id", msg_id)
        [row] = rows(cli("peek", "cli/one", "--id", msg_id, "--json")[1])
        assert (code, out.splitlines()[0].startswith(f"{msg_id}  cli/one  {state}  ")) == (0, True)
        assert (payload in out, row["msg_id"], row["state"]) == (True, msg_id, state)
    code, out, err = cli("peek", "cli/other", "--id", waiting)
    assert (code, out, "There is no such message in this topic." in err) == (1, "", True)
    assert rows(cli("peek", "cli/one", "--id", "nonsense", "--json")[1])[0]["error"]["code"] == "not_found"
    with pytest.raises(SystemExit) as bad:
        cli("peek", "cli/one", "--id", waiting, "--state", "dlq")
    assert bad.value.code == 2


def test_a_paused_topic_is_said_to_be_paused(cli) -> None:
    cli("topic", "set", "cli/paused", "paused=true")
    cli("send", "cli/paused", "--data", "x")

    assert (
        "cli/paused is paused (penstock topic set cli/paused paused=false --data-dir " in cli("recv", "cli/paused")[2]
    )
    assert "cli/paused (paused)" in cli("topics")[1]
    assert rows(cli("topics", "cli/paused", "--json")[1])[0]["paused"] is True
    cli("topic", "set", "cli/paused", "paused=false")
    assert "(paused)" not in cli("topics", "cli/paused")[1]


def test_messages_can_be_settled_by_a_pipe(node: NodeProcess, cli) -> None:
    for n in range(3):
        cli("send", "cli/pipe", "--data", str(n))
    received = cli("recv", "cli/pipe", "--max", "3", "--json")[1]
    done = subprocess.run(
        command(node, "ack", "-"), input=received, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert cli("topics", "cli/pipe")[0] == 1
    bad = subprocess.run(
        command(node, "ack", "-"), input="{}\n", capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert (bad.returncode, "line 1" in bad.stderr) == (2, True)


@pytest.mark.parametrize("way", ["-", "pipe", "file"])
def test_any_bytes_can_be_sent_and_received_as_they_are(node: NodeProcess, tmp_path: Path, way: str) -> None:
    data = bytes(range(256)) * 4
    (tmp_path / "data").write_bytes(data)
    source = {"-": ["-"], "pipe": [], "file": ["--file", str(tmp_path / "data")]}[way]
    sent = subprocess.run(
        command(node, "send", "cli/bytes", *source), input=data, capture_output=True, timeout=TIMEOUT_S, check=False
    )
    got = subprocess.run(
        command(node, "recv", "cli/bytes", "--raw", "--ack"), capture_output=True, timeout=TIMEOUT_S, check=False
    )

    assert (sent.returncode, got.returncode, got.stdout) == (0, 0, data)


# --- terminals, pipes, signals


def on_terminal(words: list[str]) -> tuple[int, bytes]:
    """Run a command with a terminal for its output."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(words, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL) as process:
        os.close(theirs)
        shown = b""
        while select.select([ours], [], [], TIMEOUT_S)[0]:
            try:
                piece = os.read(ours, 65536)
            except OSError:
                break
            shown += piece
        code = process.wait(TIMEOUT_S)
    os.close(ours)
    return code, shown


def test_no_byte_of_a_message_reaches_a_terminal_as_a_command(node: NodeProcess, cli) -> None:
    evil = "\x1b]0;owned\x07\x9b31m\x1b[2J\r\x08"
    cli("send", "cli/evil", "--data", evil, "--key", evil, "--attr", f"{evil}={evil}")
    code, shown = on_terminal(command(node, "recv", "cli/evil", "--visibility", "250ms"))

    assert code == 0
    assert b"\x1b]0" not in shown
    assert b"\x1b[2J" not in shown
    assert b"\x07" not in shown
    assert b"\x08" not in shown
    assert b"\xc2\x9b" not in shown
    assert b"bytes of binary" in shown

    code, shown = on_terminal(command(node, "recv", "cli/evil", "--raw", "--wait", "20s"))
    assert (code, b"\x1b" in shown, b"redirect it" in shown) == (1, False, True)


def test_a_long_payload_is_cut_on_a_terminal_and_whole_elsewhere(node: NodeProcess, cli) -> None:
    cli("send", "cli/long", "--data", "x" * 50_000)
    _, cut = on_terminal(command(node, "peek", "cli/long"))
    _, full = on_terminal(command(node, "peek", "cli/long", "--full"))

    assert cut.count(b"x") < 3_000
    assert b"(50000 bytes in all; --full shows them)" in cut
    assert full.count(b"x") >= 50_000
    assert cli("peek", "cli/long")[1].count("x") >= 50_000


def test_colour_is_for_terminals_only(node: NodeProcess, cli) -> None:
    cli("send", "cli/colour", "--data", "x", "--delay", "1h")
    _, shown = on_terminal(command(node, "topics"))
    piped = subprocess.run(command(node, "topics"), capture_output=True, timeout=TIMEOUT_S, check=True).stdout

    assert b"\x1b[" in shown
    assert b"\x1b" not in piped


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
def test_following_ends_when_told_acks_what_it_printed_and_exits_0(
    node: NodeProcess, cli, told: signal.Signals
) -> None:
    words = command(node, "recv", "cli/follow", "--follow", "--ack", "--json")
    with (
        sync.connect(node.ready["data_dir"]) as client,
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
    ):
        try:
            for n in range(2):
                client.mailbox.send("cli/follow", str(n))
                assert json.loads(process.stdout.readline())["attempt"] == 1
            process.send_signal(told)
            out, err = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()

    assert (process.returncode, out, err) == (0, "", "")
    assert "cli/follow" not in cli("topics", "--json")[1]


def test_following_ends_when_nobody_reads_any_more_although_no_message_comes(node: NodeProcess) -> None:
    reader, output = os.pipe()
    with subprocess.Popen(
        command(node, "recv", "cli/nobody", "--follow"), stdout=output, stderr=subprocess.PIPE
    ) as process:
        os.close(output)
        try:
            os.close(reader)
            _, err = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()

    assert (process.returncode, err) == (0, b"")


def test_following_outlives_a_restart_of_the_node(tmp_path: Path) -> None:
    with NodeProcess(data_dir=tmp_path) as node:
        words = command(node, "recv", "cli/again", "--follow", "--ack", "--json")
        with (
            sync.connect(tmp_path) as client,
            subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
        ):
            try:
                client.mailbox.send("cli/again", "before")
                seen = [json.loads(process.stdout.readline())["payload_b64"]]
                node.process.kill()
                node.process.wait(TIMEOUT_S)
                assert process.stderr.readline().startswith("penstock: waiting for the node: ")
                with NodeProcess(data_dir=tmp_path):
                    client.mailbox.send("cli/again", "after")
                    while "YWZ0ZXI=" not in seen:  # the first may come again: the node died while it was acked
                        seen.append(json.loads(process.stdout.readline())["payload_b64"])
                    process.send_signal(signal.SIGINT)
                    out, err = process.communicate(timeout=TIMEOUT_S)
            finally:
                process.kill()

    assert set(seen) == {"YmVmb3Jl", "YWZ0ZXI="}
    assert (process.returncode, out, err) == (0, "", "")


def test_following_where_no_node_runs_ends_at_once(cli, tmp_path: Path) -> None:
    code, _, err = cli("recv", "t", "--follow", data_dir=str(tmp_path))

    assert (code, err.startswith(f"penstock: no node is running in {tmp_path}:")) == (1, True)


def interrupted(words: list[str], lines: int) -> tuple[int, str]:
    """Interrupt a command after so many lines; returns its exit code and what it complained of."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            for _ in range(lines):
                process.stdout.readline()
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
    return process.returncode, err


def test_an_interrupted_command_is_quiet_and_tidies_up(node: NodeProcess, cli) -> None:
    for _ in range(5):
        code, err = interrupted(command(node, "tour", "--json"), lines=8)
        if code == 130:  # else we stood still, and it was done before
            break

    assert (code, err) == (130, "")
    assert "tour-" not in cli("topics", "--json")[1]


def test_a_reader_that_has_enough_is_no_failure(node: NodeProcess, cli) -> None:
    for n in range(20):
        cli("send", "cli/head", "--data", str(n))
    shell = (
        f"{' '.join(command(node, 'recv', 'cli/head', '--max', '20', '--json'))} | head -n 1; exit ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)

    assert (done.returncode, done.stderr, len(rows(done.stdout))) == (0, "", 1)


def test_a_closed_standard_output_is_no_failure(node: NodeProcess) -> None:
    shell = f"{' '.join(command(node, 'topics'))} >&-"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)

    assert (done.returncode, done.stderr) == (0, "")


# --- failures

DATA_COMMANDS = [
    ("send", "t", "--data", "x"),
    ("recv", "t"),
    ("ack", "m", "r"),
    ("nack", "m", "r"),
    ("extend", "m", "r"),
    ("topics",),
    ("dlq", "list"),
    ("dlq", "peek", "t"),
    ("dlq", "redrive", "t"),
    ("dlq", "delete", "t", "--yes"),
    ("peek", "t"),
    ("peek", "t", "--id", "m"),
    ("put", __file__),
    ("get", "b3:" + "0" * 64),
    ("tour",),
    ("status",),
    ("config", "reload"),
]


@pytest.mark.parametrize("words", DATA_COMMANDS, ids=lambda words: " ".join(words[:2])[:16])
def test_where_no_node_runs_every_command_says_so(cli, tmp_path: Path, words: tuple[str, ...]) -> None:
    code, out, err = cli(*words, data_dir=str(tmp_path))

    assert (code, out) == (1, "")
    assert err == (
        f"penstock: no node is running in {tmp_path}: start one with penstock up, or name another by --data-dir or "
        "--url (PENSTOCK_DATA_DIR, PENSTOCK_URL).\n"
    )


def test_a_node_that_has_died_is_no_node(cli, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "ports.json").write_text('{"mailbox": 1}')

    assert cli("topics", data_dir=str(tmp_path))[2].startswith(f"penstock: no node is running in {tmp_path}:")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("send", "no spaces please", "--data", "x"), "topic"),
        (("send", "t", "--data", "x", "--key", "k", "--delay", "5s"), "delay_ms"),
        (("recv", "t", "--max", "1000"), "--max must be at most 256"),
        (("recv", "t", "--visibility", "1ms"), "visibility_ms"),
        (("get", "b3:nonsense"), "address"),
        (("ack", "only-an-id"), "receipt"),
        (("send", "t", "some text"), "--data"),
        (("send", "t", "--file", "/nonexistent"), "No such file"),
    ],
)
def test_a_wrong_argument_is_exit_2_and_named(cli, words: tuple[str, ...], told: str) -> None:
    code, out, err = cli(*words)

    assert (code, out) == (2, "")
    assert told in err
    assert "Traceback" not in err


@pytest.mark.parametrize("words", [("recv", "t", "--wait", "soon"), ("get", "b3:x", "--range", "9-1")])
def test_a_word_that_cannot_be_read_is_exit_2(cli, capsys, words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli(*words)

    assert (ended.value.code, "is no" in capsys.readouterr().err) == (2, True)


def test_a_token_that_does_not_do_is_explained(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", "psp1_nonsense")
    code, out, err = cli("topics", "--json")

    assert (code, rows(out)[0]["error"]["reason"]) == (1, "malformed")
    assert "unauthenticated, reason malformed, corr_id " in err


def test_the_data_directory_can_come_from_the_environment(
    node: NodeProcess, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_DATA_DIR", node.ready["data_dir"])

    assert main(["send", "cli/env", "--data", "x"]) == 0
    assert main(["status", "--json"]) == 0
    assert "svc-mailbox" in capsys.readouterr().out


def test_status_counts_the_work_inside_each_service_and_its_restarts(node: NodeProcess, cli) -> None:
    code, out, _ = cli("status")
    [heading] = [line for line in out.splitlines() if "service" in line]
    [line] = [line for line in out.splitlines() if "svc-mailbox" in line]

    assert code == 0
    assert [name in heading for name in ("phase", "ready", "queued work", "restarts", "brownout")] == [True] * 5
    # Channels of the service, not messages: no capacity beside an empty one that could be read as room for them.
    assert line.split()[:3] == ["svc-mailbox", "running", "yes"]
    assert "/" not in line
