"""What a request's payload carries around its value: deadline, corr_id, trace and origin cross the wire here."""

from __future__ import annotations

from typing import Annotated

import msgspec

from penstock.contracts.call import CorrId, Origin
from penstock.kernel.errors import Malformed

# A day: no call of ours waits longer, and a peer cannot park a request for ever.
BudgetMs = Annotated[int, msgspec.Meta(ge=0, le=86_400_000)]


class RequestHead(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """msgpack `[budget_ms, corr_id, traceparent, origin, value]`.

    The deadline crosses as what is left of it: the two ends share no clock.
    """

    budget_ms: BudgetMs | None
    corr_id: CorrId
    traceparent: Annotated[str, msgspec.Meta(max_length=128)]
    origin: Origin | None
    value: msgspec.Raw


_decoder = msgspec.msgpack.Decoder(RequestHead)


def read_head(payload: bytes) -> RequestHead:
    """Read a request's payload up to its value, which is left as bytes for its own type."""
    try:
        return _decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise Malformed(f"The request cannot be read: {exc}", reason="bad_request_head") from exc
