"""The page that `penstock --help` shows: the commands in groups, with examples; coloured on a terminal."""

from __future__ import annotations

import os
import sys

GROUPS: dict[str, tuple[str, ...]] = {
    "Run a node": ("up", "serve", "stop", "open", "tour"),
    "Look at it": ("status", "top", "doctor", "inventory", "audit"),
    "Messages": ("send", "recv", "ack", "nack", "extend", "peek", "topics", "topic", "purge", "dlq"),
    "Objects": ("put", "get"),
    "Who may do what": ("token", "whoami"),
    "Which node": ("context",),
    "Before your own services": ("route", "webhook", "sqs"),
    "Discovery": ("dht",),
    "Settings and files": ("config", "mailbox", "storage"),
    "For developers": ("lint", "weave", "bench", "completion", "version"),
}
EXAMPLES: tuple[tuple[str, str], ...] = (
    ("penstock up", "run a node here, in ./.penstock"),
    ("penstock send orders --data 'two pizzas'", "store a message"),
    ("penstock recv orders --ack", "take it"),
    ("penstock top", "watch the topics"),
    ("penstock route add /shop http://127.0.0.1:8000", "put the gateway before a service of yours"),
    ("penstock status --url https://queue.example.org:5306 --token-file t", "ask a node elsewhere"),
)


def page(commands: dict[str, str]) -> str:
    """Return the page; what is in no group comes last, so that no command can be forgotten."""
    grouped = {name for names in GROUPS.values() for name in names}
    rest = tuple(name for name in commands if name not in grouped)
    lines = [_bold("penstock") + ": supervised services on one small runtime.", "", "penstock COMMAND [OPTIONS]", ""]
    for title, names in {**GROUPS, "More": rest}.items():
        there = [name for name in names if name in commands]
        if there:
            lines += [_bold(title), *(f"  {_cyan(f'{name:<12}')}{commands[name]}" for name in there), ""]
    width = max(len(line) for line, _ in EXAMPLES)
    lines += [_bold("Examples"), *(f"  {line:<{width}}  {_dim('# ' + text)}" for line, text in EXAMPLES), ""]
    return "\n".join([*lines, "penstock COMMAND --help tells more about one. --version prints the version.", ""])


def _coloured() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _style(code: str, text: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if _coloured() else text


def _bold(text: str) -> str:
    return _style("1", text)


def _cyan(text: str) -> str:
    return _style("36", text)


def _dim(text: str) -> str:
    return _style("2", text)
