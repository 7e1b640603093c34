"""Draws a page again and again on a terminal, until Ctrl-C; elsewhere it is drawn once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout

from penstock.cli.console import PageBuffer

_AGAIN_S = 1.0
_HOME = "\x1b[H\x1b[J"


def watch(draw: Callable[[], int]) -> int:
    """Draw until Ctrl-C, which is no failure; returns what the last drawing returned.

    What fails at the first drawing is told, and ends it: there is nothing to watch. Later, when a node restarts say,
    the sentence stands in the place of the page until the next drawing.
    """
    if not sys.stdout.isatty():
        return draw()
    code, drawn = 0, False
    try:
        while True:
            page, trouble = PageBuffer(sys.stdout), PageBuffer(sys.stderr)
            with redirect_stdout(page), redirect_stderr(trouble):
                code = draw()
            if code and trouble.getvalue() and not drawn:
                sys.stdout.write(page.getvalue())
                sys.stderr.write(trouble.getvalue())
                return code
            drawn = True
            # In one piece: the screen is not empty while the node is asked.
            sys.stdout.write(_HOME + page.getvalue() + trouble.getvalue())
            sys.stdout.flush()
            threading.Event().wait(_AGAIN_S)
    except KeyboardInterrupt:
        sys.stdout.write("\n")
    return code
