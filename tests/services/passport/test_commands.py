"""`penstock token` and `penstock audit`.

Offline where they can be, one sentence when refused, and exit codes that tell.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path

import pytest

from penstock.capability.making import seal
from penstock.capability.token import decode
from penstock.cli.commands import audit, token
from tests.capability.kit import Issuer
from tests.services.passport.kit import options, running


def call(module, *words: str) -> int:
    parser = argparse.ArgumentParser()
    module.add(parser)
    return module.run(parser.parse_args(words))


@pytest.fixture
def bearer() -> str:
    return Issuer().token("op=send,recv")


def test_attenuate_works_without_a_node(bearer, capsys):
    assert call(token, "attenuate", bearer, "--caveat", "op=recv", "--caveat", "topic=orders/") == 0
    narrowed = decode(capsys.readouterr().out.strip())

    assert [str(caveat) for caveat in narrowed.blocks[0].caveats] == ["op=recv", "topic=orders/"]
    assert Issuer().verdict(bearer) == "ok"


def test_token_is_read_from_standard_input_too(bearer, capsys, monkeypatch):
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO(bearer + "\n"))
    assert call(token, "attenuate", "-", "--caveat", "op=send", "--seal", "--json") == 0

    assert Issuer().verdict(json.loads(capsys.readouterr().out)["token"]) == "ok"


def test_inspect_shows_what_a_token_says_and_that_nothing_is_proven(bearer, capsys):
    assert call(token, "inspect", seal(bearer), "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["sub"], said["blocks"], said["sealed"], said["proven"]) == ("alice", [["op=send,recv"]], True, False)

    assert call(token, "inspect", bearer) == 0
    assert "op=send,recv" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (2, ("attenuate", "psp1_x", "--caveat", "op=send")),
        (2, ("attenuate", "BEARER", "--caveat", "op=fly")),
        (1, ("attenuate", "SEALED", "--caveat", "op=send")),
        (1, ("seal", "SEALED")),
        (2, ("inspect", "nonsense")),
    ],
)
def test_a_refusal_is_one_sentence_and_tells_bad_arguments_from_a_failure(code, words, bearer, capsys):
    named = {"BEARER": bearer, "SEALED": seal(bearer)}
    assert call(token, *(named.get(word, word) for word in words)) == code
    captured = capsys.readouterr()

    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert captured.err.startswith("penstock: ")


def test_without_a_node_it_says_so(tmp_path, capsys):
    assert call(token, "issue", "--subject", "a", "--audience", "*", "--data-dir", str(tmp_path)) == 1
    assert "no node" in capsys.readouterr().err


@pytest.mark.real_loop
async def test_issue_verify_and_revoke_by_a_running_node(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("PENSTOCK_TOKEN", raising=False)
    async with running(options(tmp_path, sockets=True)) as world:
        write_ports(tmp_path, world.port)
        where = ("--data-dir", str(tmp_path))
        ask = asyncio.get_running_loop().run_in_executor
        words = (
            "issue",
            "--subject",
            "alice",
            "--audience",
            "svc-mailbox",
            "--caveat",
            "op=send",
            "--ttl",
            "60",
            *where,
        )
        assert await ask(None, call, token, *words) == 0
        issued = capsys.readouterr().out.strip()
        assert await ask(None, call, token, "verify", issued, "--op", "send", *where) == 0
        assert await ask(None, call, token, "verify", issued, "--op", "recv", *where) == 1
        capsys.readouterr()
        assert await ask(None, call, token, "revoke", "--subject-ref", "alice", "--json", *where) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["revoked"], told["current_epoch"]) == ({"subject_ref": "alice"}, 1)
        assert await ask(None, call, token, "verify", issued, *where) == 1
        assert await ask(None, call, token, "revoke", "--subject-ref", "operator", *where) == 1
        assert "needs_force" in capsys.readouterr().err


def write_ports(folder: Path, port: int) -> None:
    (folder / "run").mkdir()
    (folder / "run" / "ports.json").write_text(json.dumps({"passport": port}))


async def test_audit_walks_the_chain_and_finds_a_changed_record(tmp_path, capsys):
    async with running(options(tmp_path)) as world:
        await world.issue()
        await world.issue()
    assert call(audit, "verify", "--data-dir", str(tmp_path), "--json") == 0
    assert json.loads(capsys.readouterr().out)["records"] == 2
    file = tmp_path / "audit" / "passport.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"n":2', b'"n":3'))

    assert call(audit, "verify", "--data-dir", str(tmp_path), "--json") == 1
    assert json.loads(capsys.readouterr().out)["record"] == 2
    assert call(audit, "verify", "--data-dir", str(tmp_path / "none")) == 1


def test_an_audit_nothing_was_written_to_is_no_fault(tmp_path, capsys):
    assert call(audit, "verify", "--data-dir", str(tmp_path)) == 0
    assert capsys.readouterr().out == "nothing written yet\n"
    assert call(audit, "verify", "--data-dir", str(tmp_path), "--json") == 0
    assert json.loads(capsys.readouterr().out)["records"] == 0


@pytest.mark.parametrize("left", [1, 0, None])
async def test_an_audit_whose_end_is_gone_is_found_by_its_mark(left, tmp_path, capsys):
    async with running(options(tmp_path)) as world:
        for _ in range(3):
            await world.issue()
    file = tmp_path / "audit" / "passport.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    if left is None:
        file.unlink()
    else:
        file.write_bytes(b"".join(lines[:left]))

    assert call(audit, "verify", "--data-dir", str(tmp_path)) == 1
    said = capsys.readouterr().err.lower()
    assert f"records {(left or 0) + 1} to 3" in said
    assert ("deleted" in said) is (left is None)
