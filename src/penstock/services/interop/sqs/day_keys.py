"""The short way to check a signature, for clients whose signature was found good before; pure.

All requests that a client signs in its Authorization header on one day say the same of their signature: key, day,
region, and which fields are signed. Only the date, the body and the signature itself differ. So once `SignatureCheck`
has found a request good, what it read there is kept by those bytes, together with the key of the day as two hashes
that are begun already (HMAC is a hash in a hash). A later request that says the same takes one pass: the canonical
form is put together from the fields as they stand, and its HMAC is compared.

The short way never refuses. Whatever is not as usual, or does not match, is looked at again by `SignatureCheck`, which
decides and says why. It also never trusts more: the form that is compared has the method, the path, every signed field
and the body's digest in it, and the time is checked.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Final
from urllib.parse import quote

from penstock.kernel.memo import Memo
from penstock.services.interop.sqs.sigv4 import SKEW_S, SignatureCheck, SignedRequest, Signer, derive_key, instant_of

_KEPT_MAX: Final = 256
_SIGNATURE: Final = b"Signature="
_BLOCK_BYTES: Final = 64
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))
_sha256: Final = hashlib.sha256


class DayKey:
    """What a client's requests of one day say of their signature, and the key that checks it."""

    __slots__ = ("_form", "_inner", "_outer", "_scope", "_secret", "_values", "day", "names", "signer", "signs_target")

    def __init__(self, signer: Signer, secret: str, day: str, names: tuple[bytes, ...]) -> None:
        """Derive the key, and begin the two hashes of its HMAC."""
        self.signer = signer
        self.day = day.encode("ascii")
        self.names = frozenset(names)
        self.signs_target = b"x-amz-target" in names
        self._secret = secret
        # What is signed, with places for the start, the value of each field and the body's digest. Names are letters,
        # digits and hyphens: the full check has seen to it.
        self._form = b"%b" + b"".join(name + b":%b\n" for name in names) + b"\n" + b";".join(names) + b"\n%b"
        # They are two at least: the host and the date.
        self._values = itemgetter(*names)
        self._scope = f"\n{day}/{signer.region}/sqs/aws4_request\n".encode("ascii")
        block = derive_key(secret, day, signer.region).ljust(_BLOCK_BYTES, b"\0")
        self._inner = _sha256(block.translate(_INNER))
        self._outer = _sha256(block.translate(_OUTER))

    def is_of(self, secret: str | None) -> bool:
        """Tell whether this is still the secret of its access key."""
        return secret == self._secret

    def signature(self, start: bytes, headers: Mapping[bytes, bytes], digest: bytes) -> bytes:
        """Return the signature of a request: `start` is its method, path and empty query, each with its line end."""
        form = self._form % (start, *self._values(headers), digest)
        inner = self._inner.copy()
        signed = (headers[b"x-amz-date"], self._scope, _sha256(form).hexdigest().encode("ascii"))
        inner.update(b"AWS4-HMAC-SHA256\n%b%b%b" % signed)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.hexdigest().encode("ascii")


class DayKeys:
    """Checks signatures: by the short way where it can, else by the long one."""

    def __init__(self, secret_of: Callable[[str], str | None]) -> None:
        """Take the way from an access key to its secret."""
        self._secret_of = secret_of
        self._long = SignatureCheck(secret_of)
        # By the Authorization field without the signature; only of requests that were found good.
        self._keys: Memo[bytes, DayKey] = Memo(_KEPT_MAX)

    def check(self, request: SignedRequest, headers: Mapping[bytes, bytes] | None, now: float) -> Signer:
        """Return who signed this request, or refuse it. `headers` are its fields by name, None if one came twice."""
        short = headers is not None and not request.query
        known = self.known(request.method, request.path, headers, request.body, now) if short and headers else None
        return self.prove(request, headers, now) if known is None else known

    def known(self, method: str, path: str, headers: Mapping[bytes, bytes], body: bytes, now: float) -> Signer | None:
        """Return who signed a request, if the short way can tell. It must have no query, and no field twice."""
        said, _, signature = headers.get(b"authorization", b"").rpartition(_SIGNATURE)
        key = self._keys.get(said)
        if key is None or not self._may_match(key, headers, now):
            return None
        digest = _sha256(body).hexdigest().encode("ascii")
        if headers.get(b"x-amz-content-sha256", digest) != digest:
            return None
        found = key.signature(_start(method, path), headers, digest)
        return key.signer if hmac.compare_digest(found, signature) else None

    def prove(self, request: SignedRequest, headers: Mapping[bytes, bytes] | None, now: float) -> Signer:
        """Return who signed this request by the full check, or refuse it; remember the client for the short way."""
        signer = self._long.check(request, now)
        if headers is not None:
            said = headers.get(b"authorization", b"").rpartition(_SIGNATURE)[0]
            if said:
                self._keep(said, signer, headers[b"x-amz-date"])
        return signer

    def _may_match(self, key: DayKey, headers: Mapping[bytes, bytes], now: float) -> bool:
        """Tell whether a request is as usual, all but its signature: nothing is taken from one that is not."""
        date = headers.get(b"x-amz-date", b"")
        return (
            key.is_of(self._secret_of(key.signer.key_id))
            and date.startswith(key.day)
            and headers.keys() >= key.names
            and (key.signs_target or b"x-amz-target" not in headers)
            and b"x-amz-security-token" not in headers
            and _is_now(date, now)
        )

    def _keep(self, said: bytes, signer: Signer, date: bytes) -> None:
        """Remember a client that was believed. The long way has read the same bytes, so they are well formed."""
        names = said.partition(b"SignedHeaders=")[2].partition(b",")[0].strip()
        secret = self._secret_of(signer.key_id)
        if names and secret is not None:
            self._keys.put(said, DayKey(signer, secret, date[:8].decode("ascii"), tuple(names.split(b";"))))


def _is_now(date: bytes, now: float) -> bool:
    try:
        at = instant_of(date.decode("ascii"))
    except ValueError:
        return False
    return at - SKEW_S <= now <= at + SKEW_S


# Clients ask at few paths: the root, or the addresses of their queues.
@lru_cache(maxsize=256)
def _start(method: str, path: str) -> bytes:
    return f"{method}\n{quote(path, safe='/~')}\n\n".encode("ascii")
