"""Every `penstock ...` command that a file in deploy/ names is one that can be typed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.cli import main

DEPLOY = Path(__file__).parents[2] / "deploy"
# As code in a sentence, or as what a service runs.
_NAMED = re.compile(r"`penstock ([^`\n]+)`|\bpenstock ((?:up|serve) [^\n]+)")


def named(text: str) -> list[list[str]]:
    """Give the words of each command up to its first option."""
    said = [next(filter(None, found)) for found in _NAMED.findall(text)]
    return [re.split(r"\s+-", words)[0].split() for words in said]


def unknown(words: list[str]) -> bool:
    """Tell whether a command, or what stands behind it, is none."""
    try:
        return main([*words, "--help"]) != 0
    except SystemExit as end:
        return bool(end.code)


def test_every_command_named_in_deploy_exists(capsys: pytest.CaptureFixture[str]) -> None:
    found = {str(file): named(file.read_text("utf-8")) for file in sorted(DEPLOY.rglob("*")) if file.is_file()}

    assert sum(map(len, found.values())) > 2
    assert {name: bad for name, rows in found.items() if (bad := [row for row in rows if unknown(row)])} == {}


@pytest.mark.parametrize(
    "text", ["run `penstock check`.", "run `penstock mailbox chekc --json`.", "`penstock dlq nope`"]
)
def test_a_command_that_does_not_exist_is_found(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert [unknown(words) for words in named(text)] == [True]
