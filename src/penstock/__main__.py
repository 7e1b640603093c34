"""The command as a shell starts it. Modules are imported inside `main`, so that an early Ctrl-C prints no traceback."""

from __future__ import annotations

import gc
import sys

INTERRUPTED = 130
"""Ended by Ctrl-C: the shells' own number for it."""


def main() -> int:
    """Run the command line; returns the exit code."""
    # Modules stay: looking for garbage among them would be a tenth of a start. The command line turns it on again.
    gc.disable()
    try:
        from penstock.cli import main as run  # noqa: PLC0415 - see above

        return run()
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
