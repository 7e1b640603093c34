"""The page that `penstock --help` shows: the commands in groups, with examples; coloured on a terminal."""

from __future__ import annotations

import os
import re
import sys
from shutil import get_terminal_size
from textwrap import wrap
from typing import Final

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
# The room for the names of commands, and the width of the page where there is no terminal.
_NAMES: Final = 12
_WIDTH: Final = 120
_WIDTH_MIN: Final = 40
_MORE: Final = "penstock COMMAND --help tells more about one. --version prints the version."
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
    width = max(_WIDTH_MIN, get_terminal_size((_WIDTH, 24)).columns)
    lines = [_bold("penstock") + ": supervised services on one small runtime.", "", "penstock COMMAND [OPTIONS]", ""]
    for title, names in {**GROUPS, "More": rest}.items():
        there = [name for name in names if name in commands]
        if there:
            lines += [_bold(title), *(line for name in there for line in _described(name, commands[name], width)), ""]
    lines += [_bold("Examples"), *_examples(width), ""]
    return "\n".join([*lines, *wrap(_MORE, width), ""])


def _described(name: str, text: str, width: int) -> list[str]:
    """Return the lines of one command: what it does is wrapped beside its name."""
    first, *rest = wrap(text, width - _NAMES - 2)
    return [f"  {_cyan(f'{name:<{_NAMES}}')}{first}", *(f"  {'':<{_NAMES}}{line}" for line in rest)]


def _examples(width: int) -> list[str]:
    """Return the examples: what each is for stands beside it, or above where there is no room."""
    longest = max(len(line) for line, _ in EXAMPLES)
    if longest + max(len(text) for _, text in EXAMPLES) + 6 <= width:
        return [f"  {line:<{longest}}  {_dim('# ' + text)}" for line, text in EXAMPLES]
    return [said for line, text in EXAMPLES for said in (f"  {_dim('# ' + text)}", f"  {line}")]


def dressed(text: str) -> str:
    """Colour the help of one command, if it goes to a terminal: headings, and the names of options and actions."""
    if not _coloured():
        return text
    text = re.sub(r"^(usage:|[a-z][a-z ,']*:)(?=\s|$)", lambda found: _bold(found[1]), text, flags=re.MULTILINE)
    return re.sub(r"^( {2,4})(-\S+(?:[ ,]+-\S+)*|[a-z][a-z-]+(?= {2,}))", _name, text, flags=re.MULTILINE)


def _name(found: re.Match[str]) -> str:
    return found[1] + _cyan(found[2])


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
