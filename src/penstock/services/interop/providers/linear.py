"""Linear: an HMAC-SHA256 of the body in hex; the time is inside the body, as `webhookTimestamp` in milliseconds.

A delivery that Linear sends again has another `webhookTimestamp`, so the claim is the parsed body without it, written
in one fixed form. Numbers keep the spelling they came in: two different numbers never become the same text.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple, NoReturn

from penstock.services.interop.providers.claims import Claim, by_content, length_prefixed
from penstock.services.interop.providers.decoding import (
    SHA256_BYTES,
    check_fresh,
    read_hex,
)
from penstock.services.interop.providers.hmac_key import check_tags, hmac_keys
from penstock.services.interop.providers.setup import WebhookSetup
from penstock.services.interop.providers.verdict import (
    RefusedWebhook,
    SigningNeeds,
    WebhookRefusal,
    WebhookRequest,
    WebhookVerdict,
)

_SIGNATURE: Final = b"linear-signature"
_DELIVERY: Final = b"linear-delivery"
_TIME: Final = "webhookTimestamp"
_TOLERANCE_S: Final = 60.0
_MILLISECONDS: Final = re.compile(r"[1-9][0-9]{12}")
_DEPTH_MAX: Final = 64


class _Number(NamedTuple):
    """A number as it was spelled."""

    text: str


class LinearVerifier:
    """A Linear endpoint."""

    secret_fields = frozenset({_SIGNATURE})
    signed_fields: frozenset[bytes] = frozenset()

    def __init__(self, setup: WebhookSetup) -> None:
        """Take the webhook's signing secrets, newest first."""
        self._keys = hmac_keys(setup.secrets, "linear")
        self._window_s = setup.window_s(_TOLERANCE_S)

    def check(self, request: WebhookRequest, now: float) -> WebhookVerdict:
        """Check the signature first: the time cannot be believed, nor the body parsed, before that."""
        tag = read_hex(request.required(_SIGNATURE), SHA256_BYTES)
        check_tags(self._keys, request.body, (tag,))
        body = _parse(request.body)
        time = body.pop(_TIME, None)
        if not isinstance(time, _Number):
            raise RefusedWebhook(WebhookRefusal.NO_TIMESTAMP)
        if not _MILLISECONDS.fullmatch(time.text):
            raise RefusedWebhook(WebhookRefusal.BAD_TIMESTAMP)
        check_fresh(int(time.text) / 1000, now, self._window_s)
        return WebhookVerdict(
            claim=_claim(body),
            tag=tag,
            event_id=request.label(_DELIVERY),
            event_type=".".join(part for part in (body.get("type"), body.get("action")) if isinstance(part, str)),
            unsigned=("id",),
        )

    def document(self, request: WebhookRequest) -> bytes:
        """Return the body."""
        return request.body

    def sign(self, needs: SigningNeeds) -> list[tuple[bytes, bytes]]:
        """Sign the body as it is: it has to hold a fresh `webhookTimestamp`."""
        tag = self._keys[0].tag(needs.body)
        return [(_SIGNATURE, tag.hex().encode("ascii")), (_DELIVERY, needs.event_id.encode("utf-8"))]


def _parse(data: bytes) -> dict[str, Any]:
    try:
        body = json.loads(
            data.decode("utf-8"),
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_no_constant,
            object_pairs_hook=_object,
        )
    except (ValueError, RecursionError) as exc:
        raise RefusedWebhook(WebhookRefusal.BAD_BODY) from exc
    if not isinstance(body, dict):
        raise RefusedWebhook(WebhookRefusal.BAD_BODY)
    return body


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a name that comes twice: two readers could see two different events."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name came twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _claim(body: dict[str, Any]) -> Claim:
    return by_content(canonical(body, 0))


def canonical(value: Any, depth: int) -> bytes:  # noqa: ANN401 - any JSON value
    """Write a JSON value so that equal values have equal bytes and different ones have different bytes."""
    if depth > _DEPTH_MAX:
        raise RefusedWebhook(WebhookRefusal.BAD_BODY)
    match value:
        case dict():
            members = (
                length_prefixed(name.encode("utf-8", "surrogatepass"), canonical(value[name], depth + 1))
                for name in sorted(value)
            )
            return b"{" + b"".join(members)
        case _Number():
            return b"0" + value.text.encode("ascii")
        case str():
            return b'"' + value.encode("utf-8", "surrogatepass")
        case list():
            return b"[" + length_prefixed(*(canonical(item, depth + 1) for item in value))
        case _:
            return repr(value).encode("ascii")
