"""Provider records: a signed statement that a publisher provides a key, for a while. Pure.

On the wire a record is `[body bytes, signatures]`. The body is canonical CBOR `{0 key, 1 publisher, 2 addrs, 3 seq,
4 issued, 5 ttl, 6 keys}`; `keys` are `[algorithm, public key]` pairs, the first an Ed25519 key whose BLAKE3 digest is
the publisher. Signatures stand in the order of the keys and cover the body as it was received, so nothing is ever
encoded again before it is verified. A record without addresses withdraws the publisher's earlier ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from blake3 import blake3

from penstock.capability import ed25519, hybrid
from penstock.kernel.errors import Malformed
from penstock.services.dht.core.ids import from_bytes, id_of_key, to_bytes
from penstock.wire import cbor

TTL_S_MIN: Final = 60
TTL_S_MAX: Final = 48 * 3600
TTL_S: Final = 24 * 3600
SKEW_MS: Final = 120_000
RECORD_BYTES_MAX: Final = 16 << 10
ADDRS_MAX: Final = 16
ADDR_CHARS_MAX: Final = 256
ED25519: Final = 1
ML_DSA_65: Final = 2
_CONTEXT: Final = b"penstock-dht-record/1"
_FIELDS: Final = set(range(7))


class PublisherKey(NamedTuple):
    """One of the keys that signed a record."""

    algorithm: int
    public: bytes


@dataclass(frozen=True, slots=True)
class ProviderRecord:
    """A parsed record and the bytes it was parsed from. Parsing proves the publisher's id, not the signature."""

    key: int
    publisher: int
    addrs: tuple[str, ...]
    seq: int
    issued_ms: int
    ttl_s: int
    keys: tuple[PublisherKey, ...]
    body: bytes
    signatures: tuple[bytes, ...]
    raw: bytes

    @property
    def expires_ms(self) -> int:
        """Return when it stops to count, in Unix milliseconds."""
        return self.issued_ms + self.ttl_s * 1000

    @property
    def withdrawn(self) -> bool:
        """Tell whether it takes the publisher's earlier records back."""
        return not self.addrs

    @property
    def digest(self) -> bytes:
        """Return what names exactly these bytes."""
        return blake3(self.raw).digest()


class RecordSigner:
    """A publisher's keys: Ed25519, and ML-DSA-65 beside it where that is asked for."""

    def __init__(self, seed: bytes, *, post_quantum: bool = False) -> None:
        """Derive the keys from the identity's seed."""
        self.public, self._secret = ed25519.expand(seed)
        self.id = id_of_key(self.public)
        self._ml = (
            hybrid.private_key(blake3(seed, derive_key_context="penstock dht ml-dsa-65").digest())
            if post_quantum
            else None
        )

    @property
    def keys(self) -> list[list[cbor.Encodable]]:
        """Return the public keys as they stand in a body."""
        keys: list[list[cbor.Encodable]] = [[ED25519, self.public]]
        if self._ml is not None:
            keys.append([ML_DSA_65, self._ml.public_key().public_bytes_raw()])
        return keys

    def sign(self, message: bytes) -> bytes:
        """Sign anything with the Ed25519 key."""
        return ed25519.sign_with(self._secret, message)

    def signatures(self, body: bytes) -> list[bytes]:
        """Sign a record's body with every key."""
        signed = [self.sign(_CONTEXT + body)]
        if self._ml is not None:
            signed.append(self._ml.sign(body, _CONTEXT))
        return signed


def make_record(  # noqa: PLR0913 - the record's fields
    signer: RecordSigner, key: int, addrs: tuple[str, ...], *, seq: int, issued_ms: int, ttl_s: int = TTL_S
) -> ProviderRecord:
    """Sign a record; withdraw with no addresses."""
    body = cbor.encode(
        {0: to_bytes(key), 1: to_bytes(signer.id), 2: list(addrs), 3: seq, 4: issued_ms, 5: ttl_s, 6: signer.keys}
    )
    return read_record([body, list(signer.signatures(body))])


def read_record(value: object) -> ProviderRecord:
    """Parse a record as it came; everything but the signatures and the times is judged here."""
    if type(value) is not list or len(value) != 2 or type(value[0]) is not bytes or type(value[1]) is not list:
        raise _bad("A record is a body and its signatures.")
    body, signatures = value
    raw = cbor.encode([body, signatures])
    if len(raw) > RECORD_BYTES_MAX:
        raise _bad(f"A record has at most {RECORD_BYTES_MAX} bytes.", "record_too_large")
    fields = cbor.decode(body)
    if type(fields) is not dict or set(fields) != _FIELDS:
        raise _bad("A record's body has the fields 0 to 6 and no others.")
    keys = _keys(fields[6])
    if len(signatures) != len(keys) or not all(type(each) is bytes for each in signatures):
        raise _bad("A record has one signature for each key.")
    publisher = from_bytes(fields[1])
    if publisher != id_of_key(keys[0].public):
        raise _bad("The publisher is not the id of the signing key.", "wrong_publisher")
    seq, issued_ms, ttl_s = (_unsigned(fields[number]) for number in (3, 4, 5))
    if not TTL_S_MIN <= ttl_s <= TTL_S_MAX:
        raise _bad(f"A record's ttl is {TTL_S_MIN}-{TTL_S_MAX} s.", "ttl_exceeded")
    return ProviderRecord(
        from_bytes(fields[0]), publisher, _addrs(fields[2]), seq, issued_ms, ttl_s, keys, body, tuple(signatures), raw
    )


def _keys(value: object) -> tuple[PublisherKey, ...]:
    if type(value) is not list or not 1 <= len(value) <= 2:
        raise _bad("A record is signed with one key or two.")
    pairs = [each if type(each) is list and len(each) == 2 else [0, b""] for each in value]
    if [pair[0] for pair in pairs] != [ED25519, ML_DSA_65][: len(pairs)] or not all(type(p[1]) is bytes for p in pairs):
        raise _bad("A record's keys are an Ed25519 key and, after it, an ML-DSA-65 key.")
    keys = tuple(PublisherKey(*pair) for pair in pairs)
    ed25519.read_public(keys[0].public)
    for key in keys[1:]:
        hybrid.read_public(key.public)
    return keys


def _addrs(value: object) -> tuple[str, ...]:
    if type(value) is not list or len(value) > ADDRS_MAX:
        raise _bad(f"A record has at most {ADDRS_MAX} addresses.")
    for each in value:
        if type(each) is not str or not 0 < len(each) <= ADDR_CHARS_MAX or not each.isprintable():
            raise _bad(f"An address is a printable text of at most {ADDR_CHARS_MAX} characters.")
    return tuple(value)


def _unsigned(value: object) -> int:
    if type(value) is not int or value < 0 or value >= 1 << 63:
        raise _bad("A record's numbers are unsigned.")
    return value


def check_times(record: ProviderRecord, now_ms: int) -> str | None:
    """Say what is wrong with a record's times, if anything: it is from the future, or it has expired."""
    if record.issued_ms > now_ms + SKEW_MS:
        return "future"
    if record.expires_ms <= now_ms:
        return "expired"
    return None


def signatures_hold(record: ProviderRecord) -> bool:
    """Verify every signature. Costs time: call it off the loop."""
    if not ed25519.holds(record.keys[0].public, _CONTEXT + record.body, record.signatures[0]):
        return False
    return len(record.keys) == 1 or _post_quantum_holds(record)


def _post_quantum_holds(record: ProviderRecord) -> bool:
    if not hybrid.available():
        return False
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - optional, and slow to load
    from cryptography.hazmat.primitives.asymmetric import mldsa  # noqa: PLC0415 - optional, and slow to load

    try:
        key = mldsa.MLDSA65PublicKey.from_public_bytes(record.keys[1].public)
        key.verify(record.signatures[1], record.body, _CONTEXT)
    except (InvalidSignature, ValueError):
        return False
    return True


def _bad(text: str, reason: str = "bad_record") -> Malformed:
    return Malformed(text, reason=reason)
