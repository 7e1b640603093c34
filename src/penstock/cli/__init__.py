"""The command line: parses, calls, prints. A command is imported only when it is used, so `penstock version` is fast.

commands/  one module a command
tour/      what `penstock tour` shows
asking     what the data commands share: their options, the client, and how a failure is reported
failing    words for a failure
running    finds a running node and asks its admin listener
settings   the options that lead to settings
token_roles  tokens by what they are for, and caveats that shut each other out
token_revoking  takes tokens back, and has the node sign with another key
token_tables  issued tokens for people
token_words  what a token says and what the node says of it, in lines
near_topics  which topic a misspelt name was meant for
node_told    what a node tells its operator of itself as a whole
settling   what ack, nack and extend share
confirming  asks before a topic's messages are gone for good
following  how a command that follows a stream ends
payloads   bytes from elsewhere, printed so that they cannot take the terminal over
console    rich output that survives a closed pipe
tables     tables for people
grid       rows under columns, for a terminal of any width
webhook_signing  has a webhook signed as its provider would, and sends it
upstreams  upstreams of the gateway's routes that fail, in words
webhook_tables  webhook endpoints and deliveries for people
help_page  the page of `penstock --help`
help_examples  examples for the help of each command
watching   a page drawn again and again
sdk_signatures  the signatures of the SDK, for the documentation
quiet_log  a log that a person can read
countdown  the line that shows how long a drain may still take
endings    what a drain cut off, and why, in words
output     what a node prints on standard output, off the loop
__main__   `python -m penstock.cli`
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import re
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from penstock import __version__

# What each command does, in the order `penstock --help` lists them.
COMMANDS: dict[str, str] = {
    "up": "run the whole node",
    "serve": "run one service alone",
    "stop": "drain a node of this machine and wait until it has ended",
    "open": "make a new link to the operator's page, and open it",
    "doctor": "check a node, a data directory or a URL, and say what is wrong",
    "top": "watch the busiest topics of a node",
    "status": "show services, readiness, queues and restarts of a running node",
    "tour": "demonstrate the promises on a running node, or on a node of its own",
    "context": "name nodes, and choose the one that commands go to",
    "token": "issue, narrow, explain, list, verify and revoke capabilities; rotate the key",
    "whoami": "show whose token is used, and what it is good for",
    "send": "store a message",
    "recv": "lease messages and show them",
    "ack": "acknowledge messages: they are not delivered again",
    "nack": "give messages back: they are delivered again later",
    "extend": "extend the leases of messages",
    "peek": "look at messages without taking them",
    "purge": "remove everything that waits in a topic",
    "topics": "count waiting, leased and dead messages by topic",
    "topic": "show and change the settings of a topic, delete it whole",
    "dlq": "list dead letters, show them, send them back, delete them",
    "put": "store bytes; prints their address",
    "get": "fetch an object by its address",
    "route": "lead paths of the gateway to services of your own, while it runs",
    "webhook": "look at webhooks, replay them, pass them on to a program; sign one to try an endpoint out",
    "sqs": "make access keys for AWS SQS clients, and point them at this node",
    "dht": "announce and find providers of a key; simulate a network, run a swarm",
    "audit": "walk the hash-chained audit",
    "mailbox": "check the mailbox's files, repair damaged ones",
    "storage": "check the content store's files, repair damaged packs",
    "config": "show, check or reload the configuration",
    "inventory": "list every channel, task, lock and limit; write the generated tables",
    "lint": "check code against the concurrency rules",
    "weave": "try every schedule of a small asyncio program",
    "bench": "run the benchmarks of a checkout",
    "completion": "print a script that completes this command line in your shell",
    "version": "print the version",
}


INTERRUPTED = 130
"""Ended by Ctrl-C: the shells' own number for it."""


_NO_CHOICE = re.compile(r"(argument \S+): invalid choice: '(.*)' \(choose from (.*)\)")
FAILED = 1
BAD_USE = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _mend_streams()
    as_json = "--json" in arguments
    try:
        code = _run(arguments)
        _flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BadUse as bad:
        raise SystemExit(_fail(str(bad), BAD_USE, as_json=as_json)) from None
    except BrokenPipeError:
        # The reader of our output has left, which is not an error of ours.
        _leave_output()
        return 0
    except UnicodeEncodeError:
        # What comes from a shell or a variable and is no text cannot be sent as one; our own output never raises this.
        return _fail("an argument, or a variable of the environment, is not UTF-8 text", BAD_USE, as_json=as_json)
    except OSError as error:
        # A command explains what it read or asked for itself; what is left is the place its output goes to.
        _leave_output()
        what = f"{error.filename} cannot be used" if error.filename else "the output cannot be written"
        return _fail(f"{what}: {error.strerror or error}", FAILED)
    return code


def _mend_streams() -> None:
    """Make the standard streams usable: one may be closed, and a terminal may not know every character."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            # The process was started with this stream closed; reads find nothing and writes go nowhere.
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115, PTH123 - open as long as the process
            setattr(sys, name, stream)
        if mode == "w" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _flush() -> None:
    """Flush the output. A reader that has left does not change the exit code."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _leave_output()


def _leave_output() -> None:
    """Point standard output at /dev/null, so that the flush at exit cannot fail."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(sentence: str, code: int, *, as_json: bool = False) -> int:
    with suppress(OSError):
        if as_json:
            import json

            sys.stdout.write(json.dumps({"error": {"code": "malformed", "detail": sentence}}) + "\n")
            sys.stdout.flush()
        sys.stderr.write(f"penstock: {sentence}\n")
    return code


def _run(arguments: list[str]) -> int:
    if arguments and arguments[0] == "lint":
        # The linter has a command line of its own and is used without the rest of penstock too.
        from penstock.lint import main as lint_main

        return lint_main(arguments[1:])
    if arguments and arguments[0] == "help":
        arguments = [*arguments[1:], "--help"]
    parser = _parser(arguments)
    args = parser.parse_args(arguments)
    _collect_garbage()
    if not hasattr(args, "run"):
        parser.print_help()
        return BAD_USE
    return int(args.run(args))


def _collect_garbage() -> None:
    """Turn the collector on again, if `__main__` has turned it off; what was imported meanwhile is never looked at."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def _parser(arguments: list[str]) -> argparse.ArgumentParser:
    """Make the parser of the named command alone; the page of `penstock --help` lists the others."""
    wanted = next((word for word in arguments if not word.startswith("-")), "")
    parser = parser_of({wanted})
    if wanted and arguments[0].startswith("--"):
        parser.error(_misplaced(arguments, wanted))
    if wanted and wanted not in COMMANDS:
        from penstock.wire.plain_words import near_word

        near = near_word(wanted, COMMANDS)
        parser.error(f"there is no command {wanted}" + (f"; did you mean {near}?" if near else ""))
    return parser


def _misplaced(arguments: list[str], first: str) -> str:
    """Say where options stand, with the command as it was most likely meant."""
    import shlex

    command = first if first in COMMANDS else next((word for word in arguments if word in COMMANDS), None)
    if command is None:
        return "options stand behind the command, as in penstock status --data-dir DIR"
    rest = list(arguments)
    rest.remove(command)
    return f"options stand behind the command: penstock {command} {shlex.join(rest)}"


def _no_choice(what: str, word: str, known: list[str]) -> str:
    """Say that a word is none of those that may stand there, and which one was meant."""
    from penstock.wire.plain_words import near_word

    near = near_word(word, known)
    meant = f"; did you mean {near}?" if near else ""
    return f"{what.removeprefix('argument ')}: {word!r} is none of {', '.join(known)}{meant}"


class BadUse(Exception):
    """The command line is wrong; the message says how, and where to read more."""


class _Parser(argparse.ArgumentParser):
    """A parser that reports a mistake in one line: what is wrong, and where to read more."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - argparse has a dozen of them
        """Take options by their whole names: the beginning of one may mean another to whoever wrote it."""
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401 - argparse has overloads
        """Refuse unknown arguments in the command's own parser, so that the message names the command."""
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._meant(unknown[0])}")
        return known, unknown

    def _meant(self, word: str) -> str:
        """Name the option that a misspelt one is close to."""
        from penstock.wire.plain_words import near_word

        near = near_word(word.partition("=")[0], self._option_string_actions)
        return f"; did you mean {near}?" if near and word.startswith("--") else ""

    def format_help(self) -> str:
        """Return the help, coloured on a terminal."""
        from penstock.cli.help_page import dressed

        return dressed(super().format_help())

    def error(self, message: str) -> NoReturn:
        """Raise the mistake; `main` turns it into exit code 2."""
        if message == "the following arguments are required: action":
            known = next(each.choices for each in self._actions if each.metavar == "action")
            message = f"say what to do: {', '.join(known or ())}"
        elif found := _NO_CHOICE.fullmatch(message):
            message = _no_choice(found[1], found[2], re.findall(r"'?([\w.-]+)'?(?:, |$)", found[3]))
        raise BadUse(f"{message} ({self.prog} --help tells more)")


class _TopParser(_Parser):
    """The parser of `penstock` itself; those of its commands are plain ones."""

    def format_help(self) -> str:
        """Return the commands in groups, with examples."""
        from penstock.cli.help_page import page

        return page(COMMANDS)


def parser_of(wanted: Collection[str]) -> argparse.ArgumentParser:
    """Make the parser with the options of these commands; the shell completion is made from all of them."""
    from penstock.cli.help_examples import epilog

    parser = _TopParser(prog="penstock", description="Supervised services on one small runtime.")
    parser.add_argument("--version", action="version", version=f"penstock {__version__}", help="print the version")
    commands = parser.add_subparsers(metavar="command", title="commands", parser_class=_Parser)
    for name, text in COMMANDS.items():
        if name not in wanted:
            continue
        sub = commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=epilog(name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name != "lint":
            module = importlib.import_module(f"penstock.cli.commands.{name}")
            module.add(sub)
            sub.set_defaults(run=module.run)
    return parser
