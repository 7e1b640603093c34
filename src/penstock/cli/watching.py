"""Draws a page again and again on a terminal, until Ctrl-C; elsewhere it is drawn once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stdout

from penstock.cli.console import PageBuffer

_AGAIN_S = 1.0
_HOME = "\x1b[H\x1b[J"


def watch(draw: Callable[[], int]) -> int:
    """Draw until Ctrl-C, which is no failure; returns what the last drawing returned."""
    if not sys.stdout.isatty():
        return draw()
    code = 0
    try:
        while True:
            page = PageBuffer(sys.stdout)
            with redirect_stdout(page):
                code = draw()
            # In one piece: the screen is not empty while the node is asked.
            sys.stdout.write(_HOME + page.getvalue())
            sys.stdout.flush()
            threading.Event().wait(_AGAIN_S)
    except KeyboardInterrupt:
        sys.stdout.write("\n")
    return code
