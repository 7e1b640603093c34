"""Schedules as short texts: the mode, and where the schedule departs from the first option.

`any.3-1.7-2.5e1c` reads: mode any, take option 1 at choice 3 and option 2 at choice 7, else option 0. The last part
is a check sum over how many options each choice had, so that a token of another program is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import get_args

from penstock.weave.loop import Mode

Choices = tuple[int, ...]


class BadToken(ValueError):
    """The schedule token cannot be read, or does not belong to this program."""


def write_token(mode: Mode, choices: Sequence[int], widths: Sequence[int]) -> str:
    """Write a schedule down."""
    last = max((at for at, choice in enumerate(choices) if choice), default=-1)
    parts = [f"{at}-{choice}" for at, choice in enumerate(choices) if choice]
    return ".".join([mode, *parts, check_sum(widths[: last + 1])])


def check_sum(widths: Sequence[int]) -> str:
    """Sum up how many options there were, up to the last departure."""
    return blake2b(repr(list(widths)).encode(), digest_size=2).hexdigest()


def read_token(token: str) -> tuple[Mode, Choices, str]:
    """Read a schedule: its mode, its choices up to the last departure, and the check sum."""
    mode, *parts = token.strip().split(".")
    if mode not in get_args(Mode) or not parts:
        raise BadToken(f"{token!r} is no schedule: it looks like any.3-1.7-2.5e1c")
    *departures, checked = parts
    try:
        pairs = [(int(at), int(choice)) for at, _, choice in (part.partition("-") for part in departures)]
    except ValueError:
        raise BadToken(f"{token!r} is no schedule: it looks like any.3-1.7-2.5e1c") from None
    choices = [0] * (max((at for at, _ in pairs), default=-1) + 1)
    for at, choice in pairs:
        choices[at] = choice
    return mode, tuple(choices), checked  # type: ignore[return-value]
