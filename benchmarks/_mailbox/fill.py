"""A backlog straight into the files: `fill.py DIRECTORY COUNT`; as group commits would have written it."""

from __future__ import annotations

import sys
from itertools import repeat
from pathlib import Path

from penstock.services.mailbox.engines.sqlite import SqliteEngine
from tests.services.mailbox.prefill import prefill


def main() -> None:
    """Store so many messages of 256 bytes in one topic."""
    engine = SqliteEngine(Path(sys.argv[1]), fsync=False)
    prefill(engine, repeat(("big", None), int(sys.argv[2])), bytes(range(256)))


if __name__ == "__main__":
    main()
