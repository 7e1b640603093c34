"""Why a handler gave a message back: the error's class, its message, and the end of its traceback. Pure.

The mailbox keeps it with the end of the attempt, of the last one only: a message may fail many times, and what it holds
is bounded.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

ERROR_CHARS_MAX: Final = 4096
_CLASS_CHARS_MAX: Final = 128
_MESSAGE_CHARS_MAX: Final = 1024
# Between the cause of an end and the error behind it; no cause holds this character.
_APART: Final = "\0"


class HandlerError(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename={"class_": "class"}
):
    """The error of a handler. What is too long is cut: of a traceback the end is kept."""

    class_: Annotated[str, Meta(min_length=1, max_length=256)]
    message: Annotated[str, Meta(max_length=16_384)] = ""
    traceback: Annotated[str, Meta(max_length=65_536)] = ""

    def bounded(self) -> HandlerError:
        """Return it with at most `ERROR_CHARS_MAX` characters."""
        name, message = self.class_[:_CLASS_CHARS_MAX], self.message[:_MESSAGE_CHARS_MAX]
        room = ERROR_CHARS_MAX - len(name) - len(message)
        return HandlerError(name, message, self.traceback[-room:])


def join_cause(cause: str, error: HandlerError | None) -> str:
    """Return the cause of an end as it is stored: with the error behind it, if there is one."""
    plain = cause.replace(_APART, "")
    return plain if error is None else plain + _APART + msgspec.json.encode(error.bounded()).decode()


def plain_cause(stored: str) -> str:
    """Return the cause alone."""
    return stored.partition(_APART)[0]


def split_cause(stored: str) -> tuple[str, HandlerError | None]:
    """Return the cause of an end, and the error behind it; one that cannot be read is none."""
    cause, apart, text = stored.partition(_APART)
    if not apart:
        return cause, None
    try:
        return cause, msgspec.json.decode(text.encode("utf-8", "replace"), type=HandlerError)
    except msgspec.MsgspecError:
        return cause, None
