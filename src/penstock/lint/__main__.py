"""`python -m penstock.lint`."""

from __future__ import annotations

import sys

from penstock.lint.cli import main

if __name__ == "__main__":
    sys.exit(main())
