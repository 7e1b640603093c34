"""The command line: one module a command, each parses, calls and prints; no logic lives here.

A command module has `HELP`, `add(parser)` and `run(args) -> exit code`; it is imported only when it is used,
so that `penstock version` does not pay for the node.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

# What each command does, in the order `penstock --help` lists them.
COMMANDS: dict[str, str] = {
    "up": "run the whole node",
    "serve": "run one service alone",
    "status": "show services, readiness, queues and restarts of a running node",
    "token": "issue, narrow, seal, look into, verify and revoke capabilities",
    "audit": "walk the hash-chained audit",
    "config": "show, check or reload the configuration",
    "inventory": "list every channel, task, lock and limit; write the generated tables",
    "lint": "check code against the concurrency rules",
    "version": "print the version",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] == "lint":
        # The linter has a command line of its own and is used without the rest of penstock too.
        from penstock.lint import main as lint_main

        return lint_main(arguments[1:])
    parser = _parser(arguments)
    args = parser.parse_args(arguments)
    if not hasattr(args, "run"):
        parser.print_help()
        return 2
    try:
        return int(args.run(args))
    except BrokenPipeError:
        # Whoever read our output has left; that is not our failure.
        sys.stderr.close()
        return 0


def _parser(arguments: list[str]) -> argparse.ArgumentParser:
    """Make the parser; only the named command's module is imported, the others are listed by name."""
    parser = argparse.ArgumentParser(prog="penstock", description="Five supervised services on one small runtime.")
    commands = parser.add_subparsers(metavar="command", title="commands")
    wanted = next((word for word in arguments if not word.startswith("-")), "")
    for name, text in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        if name == wanted and name != "lint":
            module = importlib.import_module(f"penstock.cli.{name}")
            module.add(sub)
            sub.set_defaults(run=module.run)
    return parser
