"""Attestations: the issuer's key vouches for the head of a service's hash chain at one moment. Pure.

A hash chain alone shows that no line was changed, taken out or put in, as long as its last hash is known. Whoever can
write the file can compute a new chain. A head that is signed by a key he does not hold stops him: everything up to that
head has to be there as it was.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final

from penstock.capability.token import prefixed
from penstock.capability.trust import KeyRecord
from penstock.contracts.passport import Attested
from penstock.kernel.errors import Integrity

_DOMAIN: Final = b"penstock.attest.v1\0"


def attest_input(service: str, n: int, head: str, at_ms: int) -> bytes:
    """Return what is signed: whose chain it is, how many lines it has, the hash of the last, and when."""
    numbers = n.to_bytes(8, "big") + at_ms.to_bytes(8, "big")
    return _DOMAIN + prefixed(service.encode()) + numbers + prefixed(head.encode())


def signature_text(signature: bytes) -> str:
    """Write a signature as an attestation holds it."""
    return base64.urlsafe_b64encode(signature).rstrip(b"=").decode("ascii")


def check_attested(attested: Attested, keys: Mapping[str, KeyRecord]) -> None:
    """Raise `Integrity` unless one of these keys signed it."""
    record = keys.get(attested.kid)
    if record is None:
        raise Integrity("The head of the audit is signed by a key that is not known here.", reason="unknown_kid")
    try:
        signature = base64.urlsafe_b64decode(attested.signature + "=" * (-len(attested.signature) % 4))
    except ValueError as exc:
        raise Integrity("The signature of the audit's head cannot be read.", reason="bad_signature") from exc
    message = attest_input(attested.service, attested.n, attested.head, attested.at_ms)
    if not record.holds(message, signature):
        raise Integrity("The signature of the audit's head does not hold.", reason="bad_signature")
