"""Errors as RFC 9457 problem details, with the members our clients act on."""

from __future__ import annotations

import random
from typing import Final

import msgspec

from penstock.kernel.errors import Internal, PenstockError
from penstock.net.advice import advice
from penstock.net.message import Response

PROBLEM_JSON: Final = b"application/problem+json"
_RETRY_STATUSES: Final = frozenset({429, 503})
_RESERVED: Final = frozenset({"type", "title", "status", "detail", "code", "corr_id", "retryable", "retry_after"})
_encode: Final = msgspec.json.Encoder(enc_hook=str).encode
_jitter: Final = random.Random()  # noqa: S311 - spreads retries, keeps no secret


def may_succeed_later(error: PenstockError | type[PenstockError]) -> bool:
    """Tell whether a client may ask again: what is told when to come back is told that it may.

    This is more than `retryable`, by which code decides alone: it leaves a call that a shutdown cut as it is.
    """
    return error.retryable or error.status in _RETRY_STATUSES


def retry_after_s(error: PenstockError) -> int | None:
    """Return jittered seconds for a 429 or 503; clients that were refused together come back apart."""
    if error.status not in _RETRY_STATUSES:
        return None
    hint = error.facts.get("retry_after")
    least = max(1, round(hint)) if isinstance(hint, int | float) else 1
    return least + _jitter.randrange(least + 1)


def members(error: PenstockError, corr_id: str, retry_after: int | None) -> dict[str, object]:
    """Return the body of the problem; facts never replace the members of the format."""
    body: dict[str, object] = {
        "type": f"urn:penstock:problem:{error.code}",
        "title": error.title(),
        "status": error.status,
        "detail": error.detail,
        "code": error.code,
        "corr_id": corr_id,
        "retryable": may_succeed_later(error),
    }
    if retry_after is not None:
        body["retry_after"] = retry_after
    body.update(advice(error))
    body.update((name, value) for name, value in error.facts.items() if name not in _RESERVED)
    return body


def extra_headers(error: PenstockError, retry_after: int | None) -> list[tuple[bytes, bytes]]:
    """Return the fields that go with a status: Retry-After, Allow, WWW-Authenticate, Content-Range."""
    headers = []
    if retry_after is not None:
        headers.append((b"Retry-After", b"%d" % retry_after))
    allow = error.facts.get("allow")
    if isinstance(allow, list | tuple):
        headers.append((b"Allow", ", ".join(map(str, allow)).encode("ascii")))
    size = error.facts.get("size")
    if error.status == 416 and isinstance(size, int):
        headers.append((b"Content-Range", b"bytes */%d" % size))
    if error.status == 401:
        headers.append((b"WWW-Authenticate", b"Bearer"))
    return headers


def problem(error: PenstockError, corr_id: str) -> Response:
    """Turn an error into its answer; of a bug nothing leaks but the corr_id."""
    if isinstance(error, Internal):
        error = Internal()
    retry_after = retry_after_s(error)
    body = _encode(members(error, corr_id, retry_after))
    return Response(error.status, body, PROBLEM_JSON, extra_headers(error, retry_after))
