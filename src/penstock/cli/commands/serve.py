"""`penstock serve <service>`: run one service alone."""

from __future__ import annotations

import argparse

from penstock.cli import settings as options
from penstock.cli.commands.up import start
from penstock.node.services import SERVICE_NAMES


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("service", choices=SERVICE_NAMES, help="which service to run")
    options.add(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON line when ready and one a phase change")


def run(args: argparse.Namespace) -> int:
    """Run the service until told to stop; a crash loop that is fatal ends the process."""
    return start(args, only=args.service)
