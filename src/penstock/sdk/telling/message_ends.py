"""What a person reads when a message ends otherwise than by an ack: one line that says everything.

A handler that failed gets its traceback below the line. A lease that was lost, a message that was rejected, or a call
that was refused for its token is no failure of the handler: it is told in one line alone.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Final, Protocol

from penstock.contracts.handler_error import ERROR_CHARS_MAX, HandlerError
from penstock.contracts.mailbox import Nacked
from penstock.kernel.errors import Expired, Forbidden, PenstockError, Unauthenticated
from penstock.sdk.handlers import WrongHandler
from penstock.sdk.telling.lines import as_utf8, tell, tell_error, text_of
from penstock.wire.plain_words import age_text

if TYPE_CHECKING:
    from penstock.sdk.errors import LeaseLost

_REFUSED: Final = (Unauthenticated, Expired, Forbidden)
_AT_ONCE_S: Final = 0.05
# Of an error's message, in the line; the traceback and the dead letter have more of it.
_SAID_CHARS_MAX: Final = 1000
_WHY_LOST: Final = {
    "not_renewed": "no renewal came through in time",
    "lapsed": "no renewal came through in time",
    "not_begun": "it was over before the handler began",
    "stale_receipt": "the mailbox has given the message to another, or it was settled elsewhere",
    "client_closed": "the client was closed",
}


class FailedDelivery(Protocol):
    """What is told about the message a handler failed on."""

    msg_id: str

    @property
    def attempt(self) -> int:
        """How often it was delivered, this time included."""
        ...

    @property
    def settled(self) -> bool:
        """Whether it is settled or its lease lost."""
        ...

    @property
    def unsettled(self) -> PenstockError | None:
        """Why it could not be acked or given back."""
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
    """Tell that a handler failed, that its message could not be settled, or that its lease is lost."""
    if delivery.lost is not None and error is delivery.lost:
        tell_lost(topic, delivery, delivery.lost)
    elif error is delivery.unsettled:
        tell("delivery.not_settled", _unsettled_line(topic, delivery, error), **_fields(topic, delivery, error))
    elif is_not_of_the_message(error):
        # The consumer stops with this error, or the token has been replaced: no traceback explains more.
        tell("handler.failed", failure_line(topic, delivery, error), **_fields(topic, delivery, error))
    else:
        tell_error("handler.failed", failure_line(topic, delivery, error), error, **_fields(topic, delivery, error))


def tell_lost(topic: str, delivery: FailedDelivery, lost: LeaseLost, after: str = "") -> None:
    """Tell once that a lease is lost; `after` says what became of the handler."""
    if lost.told:
        return
    lost.told = True
    why = _WHY_LOST.get(str(lost.facts.get("reason")), _WHY_LOST["stale_receipt"])
    line = (
        f"the lease of message {delivery.msg_id} of {topic} ended before its handler did, attempt {delivery.attempt}: "
        f"{why}; {after}it is delivered again, so it may be handled twice"
    )
    tell("delivery.lost", line, **_fields(topic, delivery, lost))


def tell_given_back(topic: str, delivery: FailedDelivery, reason: str | None) -> None:
    """Tell that a handler rejected its message, and when it comes again."""
    said = f": {' '.join(reason.split())}" if reason else ""
    line = f"the handler of {topic} rejected message {delivery.msg_id}, attempt {delivery.attempt}{said}"
    fields = {"topic": topic, "msg_id": delivery.msg_id, "attempt": delivery.attempt, "reason": reason}
    tell("delivery.rejected", f"{line}; {_what_follows(topic, delivery)}", **fields)


def failure_line(topic: str, delivery: FailedDelivery, error: BaseException) -> str:
    """Say in one line which message failed, how, and when it comes again."""
    head = f"the handler of {topic} failed on message {delivery.msg_id}, attempt {delivery.attempt}"
    return f"{head}: {_error_words(error)}; {_what_follows(topic, delivery)}"


def _unsettled_line(topic: str, delivery: FailedDelivery, error: BaseException) -> str:
    head = f"message {delivery.msg_id} of {topic}, attempt {delivery.attempt}, was handled and could not be settled"
    return f"{head}: {_error_words(error)}; {_what_follows(topic, delivery)}"


def _error_words(error: BaseException) -> str:
    said = " ".join(text_of(error).split())
    if len(said) > _SAID_CHARS_MAX:
        said = f"{said[:_SAID_CHARS_MAX]}..."
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _fields(topic: str, delivery: FailedDelivery, error: BaseException) -> dict[str, object]:
    return {"topic": topic, "msg_id": delivery.msg_id, "attempt": delivery.attempt, "error": type(error).__name__}


def _what_follows(topic: str, delivery: FailedDelivery) -> str:
    answer = delivery.given_back
    if answer is None:
        return _without_answer(delivery)
    if answer.dead_lettered:
        return f"it is a dead letter now (penstock dlq show {topic} {delivery.msg_id})"
    wait_s = answer.visible_in_ms / 1000
    return "it comes again at once" if wait_s < _AT_ONCE_S else f"it comes again in {age_text(wait_s)}"


def _without_answer(delivery: FailedDelivery) -> str:
    if delivery.lost is not None:
        return "its lease was lost, so it is delivered again"
    if delivery.settled and delivery.unsettled is None:
        return "it was acked before, so it does not come again"
    return "it comes again when its lease ends"


def error_of(error: BaseException) -> HandlerError:
    """Write an error down for the dead letter's history: its class, its message, and the end of its traceback."""
    stack = "".join(traceback.format_exception(error))
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in {"builtins", "__main__"} else f"{kind.__module__}.{kind.__qualname__}"
    )
    said = text_of(error)[:ERROR_CHARS_MAX]
    return HandlerError(as_utf8(name[-256:]), as_utf8(said), as_utf8(stack[-ERROR_CHARS_MAX:])).bounded()


def is_not_of_the_message(error: BaseException) -> bool:
    """Tell whether every message would fail so: the token was refused to the SDK's own call, or the handler is none."""
    return isinstance(error, WrongHandler) or (isinstance(error, _REFUSED) and "url" in error.facts)


def is_mended(error: BaseException) -> bool:
    """Tell whether the token that was refused has been replaced since: the next message will not fail so."""
    return isinstance(error, _REFUSED) and "token_replaced" in error.facts
