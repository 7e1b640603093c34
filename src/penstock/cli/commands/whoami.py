"""`penstock whoami`: whose token the commands use, and what it is good for."""

from __future__ import annotations

import argparse

from penstock.cli import asking
from penstock.cli.commands.token import show_own


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    asking.add(parser)


def run(args: argparse.Namespace) -> int:
    """Have the node judge the token in use, and show what it says."""
    return show_own(args)
