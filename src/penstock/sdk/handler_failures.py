"""What a person reads when a handler fails: one line that says everything, then the traceback.

A lease that was lost, or a call that was cut because its token was replaced, is no failure of the handler: it is told
in one line, without a traceback. All of it goes through `logging` as the event `handler.failed`. A program that has
configured no logging gets it on standard error all the same.
"""

from __future__ import annotations

import logging
import sys
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from penstock.contracts.handler_error import ERROR_CHARS_MAX, HandlerError
from penstock.contracts.mailbox import Nacked
from penstock.kernel.errors import Expired, Forbidden, PenstockError, Unauthenticated
from penstock.kernel.log import redact
from penstock.sdk.handlers import WrongHandler
from penstock.wire.plain_words import age_text

if TYPE_CHECKING:
    from penstock.sdk.errors import LeaseLost

_logger: Final = logging.getLogger("penstock.client")
_REFUSED: Final = (Unauthenticated, Expired, Forbidden)


class FailedDelivery(Protocol):
    """What is told about the message a handler failed on."""

    msg_id: str

    @property
    def attempt(self) -> int:
        """How often it was delivered, this time included."""
        ...

    @property
    def given_back(self) -> Nacked | None:
        """What the mailbox did with it; None when that is not known."""
        ...

    @property
    def lost(self) -> LeaseLost | None:
        """Why the lease is gone, if it is."""
        ...


def tell_failure(topic: str, delivery: FailedDelivery, error: BaseException) -> None:
    """Tell that a handler failed, or lost its lease: on the log, or on standard error where there is none."""
    if error is delivery.lost and isinstance(error.__cause__, PenstockError | None):
        _tell_in_one_line(topic, delivery, error, _lost_line(topic, delivery))
        return
    if is_mended(error):
        _tell_in_one_line(topic, delivery, error, failure_line(topic, delivery, error))
        return
    line = failure_line(topic, delivery, error)
    if _logger.hasHandlers():
        fields = {"topic": topic, "msg_id": delivery.msg_id, "attempt": delivery.attempt, "error": type(error).__name__}
        stack = "".join(traceback.format_exception(error))
        record = {
            "service": "client",
            "event": "handler.failed",
            **redact(fields),
            "reason": str(error),
            "stack": stack,
        }
        _logger.error(line, exc_info=error, extra={"fields": record})
        return
    with suppress(OSError, ValueError):
        sys.stderr.write(f"penstock: {line}\n{''.join(traceback.format_exception(error))}")
        sys.stderr.flush()


def _lost_line(topic: str, delivery: FailedDelivery) -> str:
    return (
        f"the lease of message {delivery.msg_id} of {topic} ended before its handler did, attempt {delivery.attempt}; "
        "it is delivered again, so it may be handled twice"
    )


def _tell_in_one_line(topic: str, delivery: FailedDelivery, error: BaseException, line: str) -> None:
    """Tell what no traceback explains: the program did nothing wrong."""
    if _logger.hasHandlers():
        kind = type(error).__name__
        fields = {"topic": topic, "msg_id": delivery.msg_id, "attempt": delivery.attempt, "error": kind}
        _logger.warning(line, extra={"fields": {"service": "client", "event": "handler.failed", **redact(fields)}})
        return
    with suppress(OSError, ValueError):
        sys.stderr.write(f"penstock: {line}\n")
        sys.stderr.flush()


def failure_line(topic: str, delivery: FailedDelivery, error: BaseException) -> str:
    """Say in one line which message failed, how, and when it comes again."""
    said = " ".join(str(error).split())
    what = f"{type(error).__name__}: {said}" if said else type(error).__name__
    head = f"the handler of {topic} failed on message {delivery.msg_id}, attempt {delivery.attempt}"
    return f"{head}: {what}; {_what_follows(topic, delivery)}"


def _what_follows(topic: str, delivery: FailedDelivery) -> str:
    answer = delivery.given_back
    if answer is None:
        return "its lease was lost" if delivery.lost is not None else "it comes again when its lease ends"
    if answer.dead_lettered:
        return f"it is a dead letter now (penstock dlq show {topic} {delivery.msg_id})"
    return f"it comes again in {age_text(answer.visible_in_ms / 1000)}"


def error_of(error: BaseException) -> HandlerError:
    """Write an error down for the dead letter's history: its class, its message, and the end of its traceback."""
    stack = "".join(traceback.format_exception(error))
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in {"builtins", "__main__"} else f"{kind.__module__}.{kind.__qualname__}"
    )
    return HandlerError(name[-256:], str(error)[:ERROR_CHARS_MAX], stack[-ERROR_CHARS_MAX:]).bounded()


def is_not_of_the_message(error: BaseException) -> bool:
    """Tell whether every message would fail so: the token was refused to the SDK's own call, or the handler is none."""
    return isinstance(error, WrongHandler) or (isinstance(error, _REFUSED) and "url" in error.facts)


def is_mended(error: BaseException) -> bool:
    """Tell whether the token that was refused has been replaced since: the next message will not fail so."""
    return isinstance(error, _REFUSED) and "token_replaced" in error.facts
