"""AWS Signature Version 4, in the Authorization header or in the query string of a presigned request; pure.

The client signs a canonical form of its request with a key that is derived from its secret, the day, the region and the
service. The check rebuilds that form from what arrived. What decides the meaning of a request has to be signed: the
body by its digest, Host, the date, and X-Amz-Target where it is there.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from penstock.services.interop.sqs.refusals import SqsRefusal

SKEW_S: Final = 900
_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_CREDENTIAL: Final = re.compile(
    r"([\w+=,.@-]{4,128})/([0-9]{8})/([a-z0-9-]{1,32})/([a-z0-9-]{1,32})/aws4_request", re.ASCII
)
_DATE: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z", re.ASCII)
_SIGNATURE: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_NAMES: Final = re.compile(r"[a-z0-9-]+(?:;[a-z0-9-]+)*", re.ASCII)
_EXPIRES_MAX_S: Final = 604_800
_KEYS_MAX: Final = 256
_SINGLE: Final = (
    b"authorization",
    b"host",
    b"x-amz-date",
    b"x-amz-target",
    b"x-amz-content-sha256",
    b"x-amz-security-token",
)


class SignedRequest(NamedTuple):
    """A request as it arrived: the path and query undecoded, the header fields unjoined and in lower case."""

    method: str
    path: str
    query: str
    fields: Sequence[tuple[bytes, bytes]]
    body: bytes


class Signer(NamedTuple):
    """Who signed: the access key, and the region the client believes to talk to."""

    key_id: str
    region: str


@dataclass(frozen=True, slots=True)
class _Claimed:
    """What a request says about its own signature."""

    key_id: str
    day: str
    region: str
    date: str
    names: tuple[str, ...]
    signature: str
    # Members of the query that are not signed over: the signature itself.
    query: tuple[tuple[bytes, bytes], ...]
    expires_s: int | None = None


def _incomplete(what: str) -> SqsRefusal:
    return SqsRefusal("IncompleteSignature", f"The request signature does not conform to AWS standards: {what}.")


def _mismatch() -> SqsRefusal:
    return SqsRefusal(
        "SignatureDoesNotMatch",
        "The request signature we calculated does not match the signature you provided. "
        "Check your AWS Secret Access Key and signing method.",
    )


class SignatureCheck:
    """Checks signatures by the secrets that `secret_of` knows; keeps the derived keys of the last day, bounded."""

    def __init__(self, secret_of: Callable[[str], str | None]) -> None:
        """Take the way from an access key to its secret."""
        self._secret_of = secret_of
        self._derived: dict[tuple[str, str, str, str], bytes] = {}

    def check(self, request: SignedRequest, now: float) -> Signer:
        """Return who signed this request, or refuse it."""
        fields = _single_fields(request.fields)
        claimed = _from_header(fields, request.query) if b"authorization" in fields else _from_query(request.query)
        if b"x-amz-security-token" in fields:
            raise SqsRefusal("InvalidClientTokenId", "Session tokens are not taken here.")
        _check_time(claimed, now)
        secret = self._secret_of(claimed.key_id)
        if secret is None:
            raise SqsRefusal("InvalidClientTokenId", "The security token included in the request is invalid.")
        digest = _body_digest(fields, request.body)
        _check_covered(claimed, fields)
        key = self._key(secret, claimed)
        if not any(
            hmac.compare_digest(_sign(key, claimed, form), claimed.signature)
            for form in _canonical_forms(request, claimed, digest)
        ):
            raise _mismatch()
        return Signer(claimed.key_id, claimed.region)

    def _key(self, secret: str, claimed: _Claimed) -> bytes:
        name = (claimed.key_id, secret, claimed.day, claimed.region)
        found = self._derived.get(name)
        if found is None:
            if len(self._derived) >= _KEYS_MAX:
                self._derived.clear()
            found = self._derived[name] = derive_key(secret, claimed.day, claimed.region)
        return found


def derive_key(secret: str, day: str, region: str) -> bytes:
    """Derive the key of a day, a region and this service."""
    key = b"AWS4" + secret.encode("utf-8")
    for part in (day, region, "sqs", "aws4_request"):
        key = hmac.digest(key, part.encode("ascii"), "sha256")
    return key


def _single_fields(fields: Sequence[tuple[bytes, bytes]]) -> dict[bytes, str]:
    """Return the fields that the check reads; one that came twice is refused."""
    found: dict[bytes, str] = {}
    for name, value in fields:
        if name in _SINGLE:
            if name in found:
                raise _incomplete(f"{name.decode('ascii')} came twice")
            found[name] = value.decode("utf-8", "replace")
    return found


# --- what a request claims -------------------------------------------------------------------------------------------


def _from_header(fields: dict[bytes, str], query: str) -> _Claimed:
    algorithm, _, rest = fields[b"authorization"].partition(" ")
    if algorithm != _ALGORITHM:
        raise _incomplete("the algorithm is AWS4-HMAC-SHA256")
    if len(rest) > 4096:
        raise _incomplete("the Authorization field is too long")
    parts = [part.strip().partition("=") for part in rest.split(",")]
    members = {name: value for name, _, value in parts}
    if len(members) != len(parts):
        raise _incomplete("a member came twice")
    pairs = _query_pairs(query)
    if any(name.lower() == b"x-amz-signature" for name, _ in pairs):
        raise _incomplete("it is signed twice")
    return _claimed(
        members.get("Credential", ""),
        members.get("SignedHeaders", ""),
        members.get("Signature", ""),
        fields.get(b"x-amz-date", ""),
        pairs,
    )


def _from_query(query: str) -> _Claimed:
    pairs = _query_pairs(query)
    members = {name: value.decode("utf-8", "replace") for name, value in pairs if name.startswith(b"X-Amz-")}
    if b"X-Amz-Algorithm" not in members and b"X-Amz-Signature" not in members:
        raise SqsRefusal("MissingAuthenticationToken", "Request is missing Authentication Token")
    if len([name for name, _ in pairs if name.startswith(b"X-Amz-")]) != len(members):
        raise _incomplete("a member came twice")
    if members.get(b"X-Amz-Algorithm") != _ALGORITHM:
        raise _incomplete("the algorithm is AWS4-HMAC-SHA256")
    if b"X-Amz-Security-Token" in members:
        raise SqsRefusal("InvalidClientTokenId", "Session tokens are not taken here.")
    expires = members.get(b"X-Amz-Expires", "")
    if not re.fullmatch(r"[1-9][0-9]{0,5}", expires) or int(expires) > _EXPIRES_MAX_S:
        raise _incomplete("X-Amz-Expires is 1 to 604800 seconds")
    unsigned = tuple(pair for pair in pairs if pair[0] != b"X-Amz-Signature")
    found = _claimed(
        members.get(b"X-Amz-Credential", ""),
        members.get(b"X-Amz-SignedHeaders", ""),
        members.get(b"X-Amz-Signature", ""),
        members.get(b"X-Amz-Date", ""),
        unsigned,
    )
    return _Claimed(
        found.key_id, found.day, found.region, found.date, found.names, found.signature, unsigned, int(expires)
    )


def _claimed(
    credential: str, names: str, signature: str, date: str, pairs: tuple[tuple[bytes, bytes], ...]
) -> _Claimed:
    scope = _CREDENTIAL.fullmatch(credential)
    if scope is None:
        raise _incomplete("Credential is key/date/region/sqs/aws4_request")
    if not _DATE.fullmatch(date):
        raise _incomplete("X-Amz-Date is like 20260101T000000Z")
    if not _NAMES.fullmatch(names) or not _SIGNATURE.fullmatch(signature):
        raise _incomplete("SignedHeaders or Signature is missing or malformed")
    key_id, day, region, service = scope.groups()
    if service != "sqs" or day != date[:8]:
        raise SqsRefusal("SignatureDoesNotMatch", "Credential should be scoped to the day of the request and to sqs.")
    return _Claimed(key_id, day, region, date, tuple(names.split(";")), signature, pairs)


def _query_pairs(query: str) -> tuple[tuple[bytes, bytes], ...]:
    parts = [part.partition("=") for part in query.split("&") if part]
    return tuple((unquote_to_bytes(name), unquote_to_bytes(value)) for name, _, value in parts)


# --- the checks ------------------------------------------------------------------------------------------------------


# The requests of one second have one date.
@lru_cache(maxsize=64)
def instant_of(date: str) -> float:
    """Return when a request says that it was signed; ValueError where that is no time."""
    return datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _check_time(claimed: _Claimed, now: float) -> None:
    try:
        at = instant_of(claimed.date)
    except ValueError as exc:
        raise _incomplete("X-Amz-Date is no time") from exc
    latest = at + (SKEW_S if claimed.expires_s is None else claimed.expires_s)
    if now > latest:
        raise SqsRefusal("RequestExpired", f"Signature expired: {claimed.date} is too long ago.")
    if at > now + SKEW_S:
        raise SqsRefusal("RequestExpired", f"Signature not yet current: {claimed.date} is in the future.")


def _body_digest(fields: dict[bytes, str], body: bytes) -> str:
    """Return the body's digest; a field that says another one, or that the body is unsigned, is refused."""
    digest = hashlib.sha256(body).hexdigest()
    said = fields.get(b"x-amz-content-sha256")
    if said is not None and said != digest:
        raise _mismatch()
    return digest


def _check_covered(claimed: _Claimed, fields: dict[bytes, str]) -> None:
    """Refuse when something that decides what the request means is not signed."""
    needed = {"host"} | ({"x-amz-target"} if b"x-amz-target" in fields else set())
    if claimed.expires_s is None:
        needed.add("x-amz-date")
    if not needed.issubset(claimed.names) or len(set(claimed.names)) != len(claimed.names):
        raise _incomplete("host, x-amz-date and x-amz-target have to be signed")


def _canonical_forms(request: SignedRequest, claimed: _Claimed, digest: str) -> list[str]:
    """Return the forms a client may have signed: with its query encoded anew, and as it was sent."""
    anew = "&".join(f"{quote(n, safe='-_.~')}={quote(v, safe='-_.~')}" for n, v in _sorted_query(claimed.query))
    queries = [anew]
    if claimed.expires_s is None:
        sent = "&".join(sorted(part if "=" in part else f"{part}=" for part in request.query.split("&") if part))
        queries += [sent] if sent != anew else []
    path = quote(request.path, safe="/~")
    headers = "".join(f"{name}:{_canonical_value(request.fields, name)}\n" for name in claimed.names)
    names = ";".join(claimed.names)
    return [f"{request.method}\n{path}\n{query}\n{headers}\n{names}\n{digest}" for query in queries]


def _sorted_query(pairs: tuple[tuple[bytes, bytes], ...]) -> list[tuple[bytes, bytes]]:
    return sorted(pairs, key=lambda pair: (quote(pair[0], safe="-_.~"), quote(pair[1], safe="-_.~")))


def _canonical_value(fields: Sequence[tuple[bytes, bytes]], name: str) -> str:
    wanted = name.encode("ascii")
    values = [" ".join(value.decode("utf-8", "replace").split()) for other, value in fields if other == wanted]
    return ",".join(values)


def _sign(key: bytes, claimed: _Claimed, form: str) -> str:
    scope = f"{claimed.day}/{claimed.region}/sqs/aws4_request"
    digest = hashlib.sha256(form.encode("utf-8")).hexdigest()
    text = f"{_ALGORITHM}\n{claimed.date}\n{scope}\n{digest}"
    return hmac.digest(key, text.encode("ascii"), "sha256").hex()
