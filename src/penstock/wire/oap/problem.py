"""Errors over OAP/1: status in the header, the rest as msgpack; they come back as the class they were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from penstock.kernel.errors import (
    BY_CODE,
    DownstreamUnavailable,
    Lagging,
    OverLimit,
    PenstockError,
    Timeout,
    taxonomy,
)

DETAIL_CHARS_MAX: Final = 2048
_BY_NAME: Final = {error.__name__: error for error in taxonomy()}


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """The problem members that cross the wire; `name` tells classes apart that share a code."""

    code: str
    detail: str = ""
    name: str = ""
    facts: dict[str, object] = {}


# Facts are whatever the raiser found worth saying: what msgpack does not know crosses as its text.
_encoder: Final = msgspec.msgpack.Encoder(enc_hook=str)
_decoder: Final = msgspec.msgpack.Decoder(Problem)


def encode_problem(error: PenstockError) -> bytes:
    """Write an error as the payload of its answer; the answer's `code` is `error.status`."""
    problem = Problem(error.code, error.detail[:DETAIL_CHARS_MAX], type(error).__name__, error.facts)
    try:
        return _encoder.encode(problem)
    except (OverflowError, TypeError, ValueError, RecursionError):
        texts: dict[str, object] = {name: str(value) for name, value in error.facts.items()}
        return _encoder.encode(Problem(problem.code, problem.detail, problem.name, texts))


def decode_problem(status: int, payload: bytes) -> PenstockError:
    """Rebuild the error of an answer; an answer that makes no sense is the downstream's fault (502)."""
    try:
        problem = _decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return DownstreamUnavailable(f"The answer {status} carries no readable problem.", status=502)
    kind = _BY_NAME.get(problem.name) or BY_CODE.get(problem.code) or DownstreamUnavailable
    return rebuild(kind, problem.detail, status, problem.facts)


def rebuild(kind: type[PenstockError], detail: str, status: int, facts: Mapping[str, object]) -> PenstockError:
    """Make an error that came over a wire what it was: its class, its facts and what the class derives from them."""
    # The subclasses' own constructors compose `detail` from their facts; here it is already composed.
    error = kind.__new__(kind)
    told = {name: value for name, value in facts.items() if name not in ("detail", "status", "self")}
    PenstockError.__init__(error, detail or None, status=status, **told)
    _restore(error)
    return error


def _restore(error: PenstockError) -> None:
    """Set the attributes that a class derives from its facts."""
    facts = error.facts
    if isinstance(error, Timeout):
        error.op = str(facts.get("op", ""))
        budget_ms = facts.get("budget_ms")
        error.budget_s = budget_ms / 1000 if isinstance(budget_ms, int | float) else 0.0
    elif isinstance(error, OverLimit):
        error.limit = str(facts.get("limit", ""))
    elif isinstance(error, Lagging):
        skipped = facts.get("skipped")
        error.skipped = skipped if isinstance(skipped, int) else 0
