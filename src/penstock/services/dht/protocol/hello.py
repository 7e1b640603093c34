"""The proof of identity at the start of a connection. Pure.

1. The listener sends `{0 nonce, 1 id}`. 2. The dialler answers `{0 key, 1 nonce, 2 listen, 3 flags, 4 sig}`. 3. The
listener verifies that and sends `{0 key, 1 sig}`. Each signs a label, its role, both nonces and both ids, so that no
signature can be used on another connection, for another role or by somebody in between. Without TLS this proves who
answered at connect, not each frame after it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.capability import ed25519
from penstock.kernel.errors import Malformed
from penstock.services.dht.core.contact import Contact, read_contact
from penstock.services.dht.core.ids import from_bytes, id_of_key, to_bytes
from penstock.services.dht.core.record import RecordSigner
from penstock.wire import cbor

NONCE_BYTES: Final = 32
LISTEN_MAX: Final = 4
_LABEL: Final = b"penstock-dht/1"
_DIALLER: Final = b"dialler"
_LISTENER: Final = b"listener"


class Greeting(NamedTuple):
    """The listener's first message."""

    nonce: bytes
    listener: int


class Introduction(NamedTuple):
    """The dialler's message, read but not verified."""

    key: bytes
    nonce: bytes
    listen: list[Contact]
    flags: int
    signature: bytes

    @property
    def dialler(self) -> int:
        """Return the id that the key claims."""
        return id_of_key(self.key)


class Transcript(NamedTuple):
    """What both ends sign."""

    listener_nonce: bytes
    dialler_nonce: bytes
    listener: int
    dialler: int

    def message(self, role: bytes) -> bytes:
        """Return the bytes that the end with this role signs."""
        ids = to_bytes(self.listener) + to_bytes(self.dialler)
        return _LABEL + role + self.listener_nonce + self.dialler_nonce + ids


def greeting(nonce: bytes, own: int) -> bytes:
    """Write the listener's first message."""
    return cbor.encode({0: nonce, 1: to_bytes(own)})


def read_greeting(payload: bytes) -> Greeting:
    """Read the listener's first message."""
    fields = _map(payload)
    return Greeting(_nonce(fields.get(0)), from_bytes(fields.get(1)))


def introduction(signer: RecordSigner, transcript: Transcript, listen: list[tuple[str, int]], flags: int = 0) -> bytes:
    """Write the dialler's proof, with the addresses at which it can be dialled back."""
    signature = signer.sign(transcript.message(_DIALLER))
    addresses: list[list[cbor.Encodable]] = [[host, port] for host, port in listen]
    return cbor.encode({0: signer.public, 1: transcript.dialler_nonce, 2: addresses, 3: flags, 4: signature})


def read_introduction(payload: bytes, *, group_private: bool = False) -> Introduction:
    """Read the dialler's proof; its signature is still to be verified."""
    fields = _map(payload)
    key, flags, signature, listen = fields.get(0), fields.get(3), fields.get(4), fields.get(2)
    if type(key) is not bytes or type(flags) is not int or type(signature) is not bytes or type(listen) is not list:
        raise _bad()
    ed25519.read_public(key)
    if len(listen) > LISTEN_MAX:
        raise _bad()
    own = to_bytes(id_of_key(key))
    named = [read_contact([own, *each] if type(each) is list else None, group_private=group_private) for each in listen]
    return Introduction(key, _nonce(fields.get(1)), named, flags, signature)


def dialler_holds(said: Introduction, transcript: Transcript) -> bool:
    """Verify the dialler's signature. Costs time: call it off the loop."""
    return ed25519.holds(said.key, transcript.message(_DIALLER), said.signature)


def confirmation(signer: RecordSigner, transcript: Transcript) -> bytes:
    """Write the listener's proof."""
    return cbor.encode({0: signer.public, 1: signer.sign(transcript.message(_LISTENER))})


def listener_holds(payload: bytes, transcript: Transcript) -> bool:
    """Read and verify the listener's proof: its key must be that of the id it greeted with."""
    fields = _map(payload)
    key, signature = fields.get(0), fields.get(1)
    if type(key) is not bytes or type(signature) is not bytes:
        raise _bad()
    ed25519.read_public(key)
    return id_of_key(key) == transcript.listener and ed25519.holds(key, transcript.message(_LISTENER), signature)


def _nonce(value: object) -> bytes:
    if type(value) is not bytes or len(value) != NONCE_BYTES:
        raise _bad()
    return value


def _map(payload: bytes) -> dict[int, cbor.Value]:
    fields = cbor.decode(payload)
    if type(fields) is not dict:
        raise _bad()
    return fields


def _bad() -> Malformed:
    return Malformed("This is no HELLO.", reason="bad_hello")
