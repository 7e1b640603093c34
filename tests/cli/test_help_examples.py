"""The help of every command ends with examples, and each of them is understood."""

from __future__ import annotations

import pytest

from penstock.cli import COMMANDS, parser_of
from penstock.cli.help_examples import EXAMPLES, epilog
from tests.cli.test_documented_commands import misread

LINES = [line for lines in EXAMPLES.values() for line in lines]


def test_every_command_has_examples_of_itself() -> None:
    # The linter has a command line and a help of its own.
    assert EXAMPLES.keys() == COMMANDS.keys() - {"lint"}
    assert [line for name, lines in EXAMPLES.items() for line in lines if line.split()[1] != name] == []


@pytest.mark.parametrize("line", LINES)
def test_an_example_is_understood(line: str) -> None:
    assert misread(line) == ""


def test_the_help_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser_of({"send"}).parse_args(["send", "--help"])

    assert capsys.readouterr().out.rstrip().endswith(epilog("send") or "?")


def test_a_misspelt_option_names_the_one_that_was_meant() -> None:
    assert "did you mean --data?" in misread("penstock send orders --dta x")
    assert "did you mean" not in misread("penstock send orders --zzzzz x")
