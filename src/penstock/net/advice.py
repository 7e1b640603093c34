"""What a caller can do about an error: the next step, and the page that tells more. Pure.

An error that knows better says so itself, by a fact named `hint`. The rest have the advice of this table, which is
looked up by what the error is about: its limit, its reason, else its code alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.kernel.errors import PenstockError

_PAGE: Final = "docs/errors.md"
_HINTS: Final[dict[tuple[str, str], str]] = {
    (
        "over_limit",
        "body",
    ): "Send less at once; store what is large with PUT /v1/o (penstock put) and send its address.",
    ("over_limit", "payload_bytes"): "Store it with penstock put and send its address as the message.",
    ("over_limit", "attrs"): "Put what is long into the payload.",
    ("over_limit", "attrs_bytes"): "Put what is long into the payload.",
    ("over_limit", "disk"): "Free space on the node's disk; what waits can still be received and settled.",
    ("over_limit", "storage"): "Raise storage.max_bytes, or remove objects.",
    ("over_limit", "batch"): "Send it as several batches.",
    ("over_limit", "inflate_ratio"): "Send it without Content-Encoding, or compressed less.",
    ("over_limit", "inflate_bytes"): "Send less at once; the limit holds for the inflated body too.",
    ("over_limit", "chunk_overhead"): "Send larger chunks, without extensions.",
    ("over_limit", "trailers"): "Send no trailers: nobody reads them.",
    ("over_limit", "trailer_bytes"): "Send no trailers: nobody reads them.",
    ("over_limit", "request_line"): "Put what is long into the body.",
    ("over_limit", "field"): "Put what is long into the body; cookies of other sites need not be sent here.",
    ("over_limit", "fields"): "Send fewer header fields.",
    ("over_limit", "head"): "Put what is long into the body; cookies of other sites need not be sent here.",
    (
        "unauthenticated",
        "missing",
    ): "Send a token in the Authorization field, as a bearer token (penstock token issue makes one).",
    ("unauthenticated", "malformed"): "Copy the token whole, without spaces.",
    ("unauthenticated", "revoked"): "Ask its issuer for a new token.",
    (
        "unauthenticated",
        "unknown_kid",
    ): "The token is of another node, or of a key that is gone: get one from this node.",
    ("unauthenticated", "bad_signature"): "The token is of another node, or was changed: get one from this node.",
    ("unauthenticated", "session"): "Run penstock open for a new link.",
    ("expired", "expired"): "Get a new token (penstock token issue --ttl).",
    ("expired", "not_yet_valid"): "Compare the clocks of the two machines.",
    ("rate_limited", ""): "Wait for Retry-After; an operator can raise the quota.",
    ("busy", ""): "Wait for Retry-After and ask again; nothing was done.",
    ("not_ready", ""): "Wait and ask again; penstock status names the gate that is shut.",
    ("backpressure", ""): "Wait for Retry-After and ask again; nothing was done.",
    ("timeout", ""): "Ask again, or allow more time by X-Deadline-Ms.",
    ("downstream_unavailable", ""): "Ask again in a moment; penstock status shows what is not well.",
    ("internal", ""): "Look for the corr_id in the node's log.",
    ("canceled", ""): "Ask again when the node is back; it was stopping, and what was asked may have been done.",
    (
        "conflict",
        "stale_receipt",
    ): "The lease is over: the message was settled, is a dead letter, or belongs to whoever holds the newest receipt.",
    ("forbidden", "cross_site"): "Call from the same site, or without an Origin.",
    (
        "forbidden",
        "",
    ): "Ask the issuer of the token for one that allows this; penstock token explain shows what it allows.",
    ("malformed", ""): "/openapi.json of this port says what a request may hold.",
    ("unauthenticated", ""): "Send a good token in the Authorization field (penstock token issue makes one).",
    ("expired", ""): "Get a new token (penstock token issue --ttl).",
    ("not_found", ""): "Look at how the name or id is spelt; what was removed or has expired is gone, too.",
    ("conflict", ""): "Read what is there now, then decide what to ask for.",
    ("unsupported", ""): "/openapi.json of this port says what a request may hold.",
    ("over_limit", ""): "Ask for less at once, or have the operator raise the limit.",
    ("integrity", ""): "Send the bytes again with the hash or signature that belongs to them.",
    ("bad_origin", ""): "Have the operator add the sending host to the provider's list.",
    ("policy_blocked", ""): "Ask the operator of the gateway: its policy bundle decides this.",
}


def advice(error: PenstockError) -> dict[str, object]:
    """Return the members `hint` and `docs` for an error, as far as there is anything to say."""
    said: dict[str, object] = {"docs": f"{_PAGE}#{error.code}"}
    if "hint" not in error.facts:
        about = error.facts.get("limit") or error.facts.get("reason")
        hint = _HINTS.get((error.code, about if isinstance(about, str) else "")) or _HINTS.get((error.code, ""))
        if hint is not None:
            said["hint"] = hint
    return said
