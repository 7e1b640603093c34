"""The help of every command ends with examples, and each of them is understood."""

from __future__ import annotations

import pytest

from penstock.cli import COMMANDS, parser_of
from penstock.cli.asking import by_options
from penstock.cli.help_examples import EXAMPLES, epilog
from penstock.cli.help_page import EXAMPLES as PAGE_EXAMPLES
from penstock.cli.help_page import dressed, page
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


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_page_of_all_commands_fits_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    shown = page(COMMANDS)

    longest = max(len(line) for line, _ in PAGE_EXAMPLES) + 2
    assert [line for line in shown.splitlines() if len(line) > max(width, longest)] == []
    assert all(text in " ".join(shown.split()) for text in COMMANDS.values())


def test_the_help_of_a_command_is_coloured_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.help_page._coloured", lambda: True)
    coloured = dressed("usage: penstock x [-h]\n\noptions:\n  -h, --help  show this\n  --max N     so many\n")
    monkeypatch.setattr("penstock.cli.help_page._coloured", lambda: False)

    assert "\x1b[1moptions:\x1b[0m" in coloured
    assert "  \x1b[36m-h, --help\x1b[0m  show this" in coloured
    assert "  \x1b[36m--max\x1b[0m N     so many" in coloured
    assert dressed("options:\n  --max N\n") == "options:\n  --max N\n"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("penstock dlq", "say what to do: list, peek, show, redrive, delete"),
        ("penstock dlq list --max -1", "argument --max"),
        ("penstock dlq list --max 0", "'0' is no count: write a whole number from 1 on"),
        ("penstock top --max many", "'many' is no count: write a whole number from 1 on"),
        ("penstock recv orders --max ²", "'²' is no count"),
    ],
)
def test_wrong_use_is_told_in_words_for_people(line: str, told: str) -> None:
    assert told in misread(line)


@pytest.mark.parametrize(
    ("detail", "told"),
    [
        ("wait_ms must be at most 20000.", "--wait must be at most 20s."),
        ("max_messages must be at most 256.", "--max must be at most 256."),
        ("visibility_ms must be at least 250.", "--visibility must be at least 250ms."),
        ("delay_ms must be at most 5.", "delay_ms must be at most 5."),  # recv has no such option
        ("Something else.", "Something else."),
    ],
)
def test_a_refusal_names_the_option_and_not_the_field_it_became(detail: str, told: str) -> None:
    args = parser_of({"recv"}).parse_args(["recv", "orders"])

    assert by_options(args, detail) == told
