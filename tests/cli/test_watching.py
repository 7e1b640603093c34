"""A page that is drawn again and again: what cannot be watched ends it, what passes does not."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest

from penstock.cli import watching


class TerminalText(io.StringIO):
    """A terminal, as far as a page needs one."""

    def isatty(self) -> bool:
        return True


def watched(monkeypatch: pytest.MonkeyPatch, draw: Callable[[], int]) -> tuple[int, str, str]:
    """Watch on a terminal, without a pause between two drawings; returns the code and what was written."""
    out, err = TerminalText(), TerminalText()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        patch.setattr(watching, "_AGAIN_S", 0.0)
        code = watching.watch(draw)
    return code, out.getvalue(), err.getvalue()


def in_turn(*drawings: tuple[str, str, int]) -> Callable[[], int]:
    """Draw these pages, each with what it says on standard error and its code; then Ctrl-C comes."""
    left = iter(drawings)

    def draw() -> int:
        page, trouble, code = next(left, (None, None, 0))
        if page is None:
            raise KeyboardInterrupt
        sys.stdout.write(page)
        sys.stderr.write(trouble)
        return code

    return draw


def test_what_fails_at_the_first_drawing_is_told_once_and_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = in_turn(("", "penstock: only the operator's token will do\n", 1), ("never", "", 0))

    assert watched(monkeypatch, draw) == (1, "", "penstock: only the operator's token will do\n")


def test_what_fails_later_stands_in_the_place_of_the_page_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = in_turn(("page one", "", 0), ("", "penstock: no node\n", 1), ("page two", "", 0))
    pages = "\x1b[H\x1b[Jpage one\x1b[H\x1b[Jpenstock: no node\n\x1b[H\x1b[Jpage two\n"

    assert watched(monkeypatch, draw) == (0, pages, "")


def test_a_page_that_says_not_ready_is_watched_until_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = in_turn(("not ready", "", 1), ("ready", "", 0))

    assert watched(monkeypatch, draw) == (0, "\x1b[H\x1b[Jnot ready\x1b[H\x1b[Jready\n", "")
