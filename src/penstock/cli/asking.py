"""What the data commands share: their options, the client of the running node, and how a failure is reported."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from penstock.cli import running

if TYPE_CHECKING:
    from penstock.cli.failing import FailureWords
    from penstock.kernel.errors import PenstockError
    from penstock.sdk import Client

FAILED: Final = 1
BAD_USE: Final = 2
NOT_READY: Final = 4

_DURATION: Final = re.compile(r"(\d{1,9})(ms|s|m|h|d)", re.ASCII)
_COUNT_END: Final = 10**9
# What the node calls an option, and what the command line calls it.
_BOUND: Final = re.compile(r"(\w+) must be (at least|at most) (\d+)\.")
_OPTIONS: Final = {
    "max_messages": "--max",
    "limit": "--max",
    "wait_ms": "--wait",
    "visibility_ms": "--visibility",
    "delay_ms": "--delay",
    "ttl_ms": "--ttl",
    "ttl_s": "--ttl",
}
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options every data command has."""
    running.add(parser)
    parser.add_argument(
        "--timeout", type=duration_ms, default=10_000, metavar="TIME", help="how long a call may take (default 10s)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, one object a line")


def duration_ms(text: str) -> int:
    """Read `250ms`, `5s`, `10m`, `24h` or `7d` as milliseconds; argparse turns the error into exit 2."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: write a number with its unit, as 250ms, 5s, 10m")
    return int(found[1]) * _UNITS_MS[found[2]]


def count(text: str) -> int:
    """Read a whole number from 1 on; argparse turns the error into exit 2."""
    if not (text.isascii() and text.isdigit() and 0 < int(text) < _COUNT_END):
        raise argparse.ArgumentTypeError(f"{text!r} is no count: write a whole number from 1 on")
    return int(text)


def ask(args: argparse.Namespace, work: Callable[[Client], Awaitable[int]]) -> int:
    """Do `work` with a client of the running node; a failure is one sentence and an exit code, never a traceback."""
    return play(args, lambda: _with_client(args, work))


def play(args: argparse.Namespace, work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run a coroutine on its own loop. What the client logs is not shown on the terminal."""
    import asyncio
    import logging

    from penstock.kernel.errors import PenstockError

    logging.getLogger("penstock").addHandler(logging.NullHandler())
    try:
        with asyncio.Runner() as runner:
            return runner.run(work())
    except PenstockError as error:
        return explain(args, error)


async def _with_client(args: argparse.Namespace, work: Callable[[Client], Awaitable[int]]) -> int:
    from penstock.sdk import Client, SdkOptions

    options = SdkOptions(timeout_s=args.timeout / 1000)
    async with Client(running.place(args), options) as client:
        return await work(client)


def explain(args: argparse.Namespace, error: PenstockError) -> int:
    """Report an error: a sentence for people, with --json the members of the problem."""
    facts = {name: value for name, value in error.facts.items() if value not in (None, "")}
    if args.json:
        print_json({"error": {"code": error.code, "detail": error.detail, **facts}})
    # A field that is too large is in the sentence already; the others are names to look for.
    marks = ("reason", "corr_id") if "field" in facts else ("reason", "limit", "corr_id")
    named = ", ".join(f"{name} {facts[name]}" for name in marks if name in facts)
    said = " ".join(filter(None, _words(args, error)))
    sys.stderr.write(f"penstock: {said}{f' ({error.code}, {named})' if named else ''}\n")
    return {"malformed": BAD_USE, "not_ready": NOT_READY}.get(error.code, FAILED)


def _words(args: argparse.Namespace, error: PenstockError) -> FailureWords:
    from penstock.cli.failing import FailureWords, no_node, words
    from penstock.sdk import NoNode

    reason, url = str(error.facts.get("reason", "")), running.remote(args)
    said = by_options(args, error.detail)
    # What names the option and its limit has said what to do.
    hint = str(error.facts.get("hint", "")) if said == error.detail else ""
    told = words(FailureWords(said, hint), reason=reason, url=url)
    away = isinstance(error, NoNode) or "out of reach" in error.detail
    if not away or url is not None or reason or told.hint:
        return told
    return FailureWords(no_node(running.directory(args)))


def by_options(args: argparse.Namespace, detail: str) -> str:
    """Name the option in place of the field of the request that it became, if the command has such an option."""
    found = _BOUND.fullmatch(detail)
    option = found and _OPTIONS.get(found[1])
    if not found or not option or not hasattr(args, option.removeprefix("--")):
        return detail
    from penstock.config.kinds import format_duration

    unit_s = {"ms": 0.001, "s": 1.0}.get(found[1].rpartition("_")[2])
    bound = found[3] if unit_s is None else format_duration(int(found[3]) * unit_s)
    return f"{option} must be {found[2]} {bound}."


def refuse(args: argparse.Namespace, sentence: str) -> int:
    """Report that an argument cannot be used, and return the exit code for it."""
    return running.refuse(args, sentence, code="malformed", exit_code=BAD_USE)


def print_json(value: object) -> None:
    """Print one object on one line and flush it, because a program may be reading along."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def plain(struct: object) -> dict[str, Any]:
    """Turn a contract's value into what its JSON form would be."""
    import msgspec

    made: dict[str, Any] = json.loads(msgspec.json.encode(struct))
    return made
