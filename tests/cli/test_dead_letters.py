"""`penstock dlq`: dead letters are sent back or deleted, all, by their reason, or those that are named."""

from __future__ import annotations

import io

import pytest

from penstock.cli.tables import dead_letters
from penstock.contracts import mailbox as m
from tests.cli.conftest import dead, rows


class Terminal(io.StringIO):
    """A person at a keyboard who has written this."""

    def isatty(self) -> bool:
        return True


def test_the_list_cuts_a_long_error_and_says_where_it_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    def letter(message: str) -> m.DeadLetter:
        history = (m.Attempt(1, "nacked", m.HandlerError("ValueError", message, "")),)
        return m.DeadLetter("01", "orders", "ValueError", 1, 1, 1, "b3:0", history)

    dead_letters([letter("short")])
    whole = capsys.readouterr().out
    dead_letters([letter("x" * 1024), letter("first\nsecond")])
    cut = capsys.readouterr().out

    assert "dlq show" not in whole
    assert "x" * 80 + " ..." in cut
    assert "x" * 81 not in cut
    assert "first ..." in cut
    assert "penstock dlq show TOPIC MSG_ID has all of one" in cut


def test_named_dead_letters_go_back_and_the_others_stay(cli) -> None:
    first, second, third = dead(cli, "cli/named", ["a", "b", "c"])

    assert cli("dlq", "redrive", "cli/named", second, "--dry-run") == (0, "1 would go back\n", "")
    assert cli("dlq", "redrive", "cli/named", first, second) == (0, "2 go back\n", "")
    back = {rows(cli("recv", "cli/named", "--json", "--wait", "20s")[1])[0]["origin_id"] for _ in range(2)}
    assert back == {first, second}
    assert [row["msg_id"] for row in rows(cli("dlq", "list", "cli/named", "--json")[1])] == [third]
    code, out, err = cli("dlq", "redrive", "cli/named", first, "--json")
    assert (code, rows(out)[0]) == (1, {"accepted": 0, "dry_run": False, "missing": [first]})
    assert err == f"penstock: cli/named has no dead letter {first}\n"
    assert cli("dlq", "redrive", "cli/named", third, "--reason", "rejected")[0] == 2


def test_the_kind_of_a_reason_stands_for_all_of_it(cli) -> None:
    dead(cli, "cli/kinds", ["ValueError", "KeyError", "ValueError"])

    assert len(rows(cli("dlq", "list", "cli/kinds", "--reason", "rejected", "--json")[1])) == 3
    assert cli("dlq", "list", "cli/kinds", "--reason", "reject", "--json")[1] == ""
    redrive = ("dlq", "redrive", "cli/kinds", "--dry-run")
    assert cli(*redrive, "--reason", "rejected")[1] == "3 would go back\n"
    assert cli(*redrive, "--reason", "rejected", "--max", "2")[1] == "2 would go back\n"
    assert cli(*redrive, "--reason", "rejected:ValueError")[1] == "2 would go back\n"
    assert cli(*redrive, "--reason", "ttl")[1] == "0 would go back\n"


def listed(cli, topic: str) -> list[str]:
    return [row["msg_id"] for row in rows(cli("dlq", "list", topic, "--json")[1])]


def test_dead_letters_are_deleted_by_their_ids_their_reason_or_all(cli) -> None:
    first, second, third, fourth = dead(cli, "cli/deleted", ["a", "b", "b", "c"])
    delete = ("dlq", "delete", "cli/deleted")

    assert cli(*delete, "--reason", "rejected:b", "--dry-run") == (0, "2 would be removed\n", "")
    assert listed(cli, "cli/deleted") == [first, second, third, fourth], "a dry run only counts"
    assert cli(*delete, first, "--yes") == (0, "1 removed\n", "")
    assert cli(*delete, "--reason", "rejected:b", "--yes", "--json")[:2] == (0, '{"deleted": 2, "dry_run": false}\n')
    assert listed(cli, "cli/deleted") == [fourth]
    code, out, err = cli(*delete, first, fourth, "--yes", "--json")
    assert (code, rows(out)) == (1, [{"deleted": 1, "dry_run": False, "missing": [first]}])
    assert err == f"penstock: cli/deleted has no dead letter {first}\n"
    assert cli(*delete, "--yes") == (0, "0 removed\n", "")
    assert cli(*delete, first, "--reason", "a", "--yes")[0] == 2


def test_no_dead_letter_is_deleted_before_somebody_said_so(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    letters = dead(cli, "cli/asked", ["a", "b"])
    delete = ("dlq", "delete", "cli/asked")

    monkeypatch.setattr("sys.stdin", io.StringIO("cli/asked\n"))
    code, _, err = cli(*delete)
    assert (code, err) == (2, "penstock: 2 dead letters of cli/asked would be gone for good; say --yes to do it\n")
    monkeypatch.setattr("sys.stdin", Terminal("yes\n"))
    assert (cli(*delete)[0], listed(cli, "cli/asked")) == (1, letters)
    monkeypatch.setattr("sys.stdin", Terminal("cli/asked\n"))
    assert cli(*delete, "--reason", "rejected:a")[:2] == (0, "1 removed\n")
    assert listed(cli, "cli/asked") == letters[1:]


def test_what_a_bound_leaves_is_said(cli) -> None:
    letters = dead(cli, "cli/bounded", ["a", "b"])

    assert cli("dlq", "delete", "cli/bounded", "--max", "1", "--yes")[1] == "1 removed, as many as --max allows\n"
    assert listed(cli, "cli/bounded") == letters[1:], "the oldest goes first"


def test_the_letter_that_died_last_is_shown_though_it_was_sent_first(cli) -> None:
    first = cli("send", "cli/last", "--data", "first")[1].strip()
    [slow] = rows(cli("recv", "cli/last", "--json", "--wait", "20s", "--visibility", "1m")[1])
    dead(cli, "cli/last", ["quick"])
    cli("nack", slow["msg_id"], slow["receipt"], "--final")

    assert rows(cli("dlq", "show", "cli/last", "--json")[1])[0]["msg_id"] == first


@pytest.mark.parametrize("command", [("list",), ("redrive",), ("delete", "--yes"), ("delete", "--dry-run")])
def test_a_misspelt_topic_without_dead_letters_is_answered_with_the_near_one(cli, command: tuple[str, ...]) -> None:
    dead(cli, "cli/spelling", ["a"])
    code, _, err = cli("dlq", command[0], "cli/speling", *command[1:])

    assert (code, err) == (0, "penstock: did you mean cli/spelling?\n")
    assert cli("dlq", "list", "cli/spelling", "--reason", "visibility")[2] == ""
