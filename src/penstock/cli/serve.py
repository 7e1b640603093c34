"""`penstock serve <service>`: run one service alone."""

from __future__ import annotations

import argparse

from penstock.cli import settings as options
from penstock.cli.up import launch
from penstock.kernel.log import configure
from penstock.node import process
from penstock.node.build import SERVICE_NAMES, schema


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("service", choices=SERVICE_NAMES, help="which service to run")
    options.add(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON line when ready and one a phase change")


def run(args: argparse.Namespace) -> int:
    """Run the service until told to stop; a crash loop that is fatal ends the process."""
    given = options.sources(args)
    settings = options.load_or_explain(schema(), given)
    if settings is None:
        return process.BAD_CONFIG
    configure(settings.text("node.log.format"), settings.text("node.log.level"))
    return launch(settings, given, only=args.service, as_json=args.json)
