"""Turns problem details back into errors: class, status, facts and corr_id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from penstock.kernel.errors import BY_CODE, DownstreamUnavailable, PenstockError
from penstock.wire.oap.problem import rebuild

# Members that the error's class and status already say.
_SAID: Final = frozenset({"type", "title", "status", "detail", "code", "retryable"})
# What a refusal without a body says, as every refusal of a HEAD is; of two with one status the plainer one.
_BY_STATUS: Final = {kind.status: kind for kind in reversed(BY_CODE.values())}
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


def raised(status: int, body: bytes, headers: Mapping[bytes, bytes]) -> PenstockError:
    """Return the error of an answer; one without a readable problem is the node's fault (502)."""
    corr_id = headers.get(b"x-corr-id", b"").decode("latin-1")
    if not body and status in _BY_STATUS:
        return rebuild(_BY_STATUS[status], _BY_STATUS[status].title(), status, {"corr_id": corr_id})
    try:
        members = _decode(body)
        kind = BY_CODE[members["code"]]
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError):
        said = f"This is not a penstock node: its answer {status} carries no readable problem."
        return DownstreamUnavailable(said, status=502, corr_id=corr_id)
    facts = {name: value for name, value in members.items() if name not in _SAID}
    return rebuild(kind, str(members.get("detail", "")), status, {"corr_id": corr_id, **facts})
