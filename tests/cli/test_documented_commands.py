"""Every `penstock` line that a page shows is one that the command line understands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from penstock import cli
from penstock.cli import parser_of

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
_BLOCK = re.compile(r"```(?:sh|console)\n(.*?)```", re.DOTALL)
# Up to the first comment, pipe, redirection or next command.
_END = re.compile(r"\s(?:#|\||>|<|&|;|&&).*")


def shown(text: str) -> list[str]:
    """Return the `penstock` commands of a page, each without what a shell does with its output."""
    lines = "\n".join(_BLOCK.findall(text)).replace("\\\n", " ").splitlines()
    found = (re.match(r"(?:\$ )?(?:\S*/bin/)?(penstock .*)", line.strip()) for line in lines)
    return [_END.sub("", match[1]) for match in found if match]


COMMANDS = [
    pytest.param(line, id=f"{page.name}: {line}")
    for page in PAGES
    if "decisions" not in page.parts
    for line in shown(page.read_text())
]


def misread(line: str) -> str:
    """Return what the command line has against a command; empty when it understands it."""
    words = [word for word in shlex.split(line)[1:] if not re.fullmatch(r"\[.*|.*\]", word)]
    try:
        parser_of({words[0]}).parse_args(words)
    except cli.BadUse as error:
        return str(error)
    return ""


@pytest.mark.parametrize("line", COMMANDS)
def test_a_shown_command_is_understood(line: str) -> None:
    if line.split()[1].startswith(("--version", "<", "lint")):
        pytest.skip("it has no parser of its own")

    assert misread(line) == ""


def test_commands_are_found() -> None:
    assert len(COMMANDS) > 40


@pytest.mark.parametrize("line", ["penstock topics --jsom", "penstock token issue --who x", "penstock fly"])
def test_a_wrong_command_is_not_understood(line: str) -> None:
    assert misread(line) != ""
