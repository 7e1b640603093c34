"""The exact bytes of a token: text, envelope, root and blocks, chain values, and what is signed.

A token is a root signed by the issuer and up to seven blocks, each signed by the key its predecessor committed to.
It ends in exactly one proof: the last key's seed (bearer: can be narrowed further) or a seal over the whole chain.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar, cast

import msgspec
from blake3 import blake3

from penstock.capability.caveats import (
    CAVEATS_MAX,
    NUMBER_MAX,
    VALUE_CHARS_MAX,
    VALUES_TOTAL_MAX,
    Caveat,
    check_scopes,
    from_wire,
)
from penstock.capability.ed25519 import PUBLIC_BYTES, SEED_BYTES, SIGNATURE_BYTES, read_public
from penstock.capability.families import AUDIENCES, CLASSES, GATEWAY, ROUTE_AUDIENCE
from penstock.contracts.capability import TrafficClass
from penstock.kernel.errors import Malformed, OverLimit
from penstock.wire import cbor

ED25519: Final = "ed25519"
HYBRID: Final = "ed25519+ml-dsa-65"
ALGORITHMS: Final = (ED25519, HYBRID)

PREFIX: Final = "psp1_"
VERSION: Final = 1
BLOCKS_MAX: Final = 7
VIA_LEVELS_MAX: Final = 4
VIA_IDS_MAX: Final = 16
ID_BYTES: Final = 16
BYTES_MAX: Final = {ED25519: 4096, HYBRID: 8192}
TEXT_CHARS_MAX: Final = len(PREFIX) + -(-BYTES_MAX[HYBRID] * 4 // 3)

BEARER: Final = 0
SEALED: Final = 1

_DOMAIN: Final = b"penstock.psp1"
_CHAIN: Final = blake3(derive_key_context="penstock.psp1.chain")
_ROOT_KEYS: Final = frozenset(range(16))
_KEYS: Final = tuple(bytes((key,)) for key in range(16))
_OPTIONAL: Final = frozenset({7, 9})
T = TypeVar("T")


class IssuingLevel(msgspec.Struct, frozen=True):
    """A token that this one was issued with: its ids, and whose it was. Revoking any of these revokes this one too.

    Older tokens hold the ids alone; they are read, judged by what they hold, and written back the same way.
    """

    # The tid, then the ids of its blocks.
    ids: tuple[bytes, ...]
    sub: str = ""
    # The tenant, or `sub:` and the subject, as `TokenRoot.owner` settles it.
    owner: str = ""
    kid: str = ""
    epoch: int = 0

    def wire(self) -> tuple[Any, ...]:
        """Return what the token holds."""
        return (self.ids, self.sub, self.owner, self.kid, self.epoch) if self.sub else self.ids


class TokenRoot(msgspec.Struct, frozen=True, kw_only=True):
    """What the issuer says. Whatever gives something is here and nowhere else."""

    alg: str
    kid: str
    epoch: int
    iss: str
    aud: tuple[str, ...]
    sub: str
    tenant: str | None
    class_: TrafficClass
    # The tokens it was issued with, the first issuer's first.
    via: tuple[IssuingLevel, ...]
    iat: int
    nbf: int
    exp: int
    tid: bytes
    caveats: tuple[Caveat, ...]
    # The key that the first block must be signed with, or the proof made with.
    epk: bytes

    @property
    def owner(self) -> str:
        """Settle the tenant: the root's, else the subject in a name space of its own."""
        return f"sub:{self.sub}" if self.tenant is None else self.tenant


class Block(msgspec.Struct, frozen=True):
    """A narrowing: further caveats, and the key that comes next."""

    data: bytes
    signature: bytes
    caveats: tuple[Caveat, ...]
    epk: bytes


class Token(msgspec.Struct, frozen=True):
    """A decoded token; nothing about it is proven yet."""

    data: bytes
    root: TokenRoot
    signature: bytes
    blocks: tuple[Block, ...]
    # BEARER with a seed, or SEALED with a signature.
    proof: tuple[int, bytes]

    def __repr__(self) -> str:
        """Show which it is, and nothing that could be used."""
        return f"Token({self.root.tid.hex()}, blocks={len(self.blocks)})"

    @property
    def epk(self) -> bytes:
        """Return the last committed key."""
        return self.blocks[-1].epk if self.blocks else self.root.epk

    @property
    def caveats(self) -> tuple[Caveat, ...]:
        """Return the caveats of the root and of every block: the grant is their conjunction."""
        return (*self.root.caveats, *(caveat for block in self.blocks for caveat in block.caveats))

    def chain(self) -> list[bytes]:
        """Return the chain values T_0 .. T_n; the first 16 bytes of each are the id of its block."""
        values = [chain_root(self.data, self.signature)]
        for block in self.blocks:
            values.append(chain_block(values[-1], block.data, block.signature))
        return values


# --- what is hashed and signed
# -----------------------------------------------------------------------------------------


def prefixed(data: bytes) -> bytes:
    """Put a length of 32 bits before the data, so that no two lists of fields look alike."""
    return len(data).to_bytes(4, "big") + data


def root_input(alg: str, kid: str, data: bytes) -> bytes:
    """Return what the issuer signs: it names the algorithm, both halves of it if it is a pair, and the key."""
    return _DOMAIN + b".root\0" + prefixed(alg.encode()) + prefixed(kid.encode()) + prefixed(data)


def block_input(index: int, before: bytes, data: bytes) -> bytes:
    """Return what the previous key signs; `before` ties the block to this one chain and place."""
    return _DOMAIN + b".block\0" + bytes((index,)) + before + prefixed(data)


def seal_input(last: bytes) -> bytes:
    """Return what a seal signs."""
    return _DOMAIN + b".seal\0" + last


def _chained(data: bytes) -> bytes:
    hasher = _CHAIN.copy()
    hasher.update(data)
    return hasher.digest()


def chain_root(data: bytes, signature: bytes) -> bytes:
    """Return T_0."""
    return _chained(prefixed(data) + prefixed(signature))


def chain_block(before: bytes, data: bytes, signature: bytes) -> bytes:
    """Return T_i."""
    return _chained(before + prefixed(data) + prefixed(signature))


# --- writing
# -----------------------------------------------------------------------------------------------------------


# Algorithm, key, issuer, audience, times and caveats repeat from token to token; what was encoded is kept.
_kept: Final = lru_cache(maxsize=4096)(cbor.encode)


def encode_root(root: TokenRoot) -> bytes:
    """Write a root; as `cbor.encode` writes the map of its fields, put together from parts that are mostly kept."""
    pairs = [
        (1, _kept(root.alg)),
        (2, _kept(root.kid)),
        (3, _kept(root.epoch)),
        (4, _kept(root.iss)),
        (5, _kept(root.aud)),
        (6, _kept(root.sub)),
        (8, _kept(root.class_)),
        (10, _kept(root.iat)),
        (11, _kept(root.nbf)),
        (12, _kept(root.exp)),
        (13, cbor.encode(root.tid)),
        (14, _kept(tuple(caveat.wire() for caveat in root.caveats))),
        (15, cbor.encode(root.epk)),
    ]
    if root.via:
        pairs.insert(7, (9, _kept(tuple(level.wire() for level in root.via))))
    if root.tenant is not None:
        pairs.insert(6, (7, _kept(root.tenant)))
    parts = [bytes((0xA0 | len(pairs) + 1, 0, VERSION))]
    for key, value in pairs:
        parts += (_KEYS[key], value)
    return b"".join(parts)


def encode_block(caveats: tuple[Caveat, ...], epk: bytes) -> bytes:
    """Write a block."""
    return cbor.encode([[caveat.wire() for caveat in caveats], epk])


def encode(token: Token) -> str:
    """Write the text of a token; one that would be too large to be read is refused."""
    blocks: list[cbor.Encodable] = [[block.data, block.signature] for block in token.blocks]
    data = cbor.encode([VERSION, token.data, token.signature, blocks, list(token.proof)])
    if len(data) > BYTES_MAX[token.root.alg]:
        raise OverLimit(f"A token has at most {BYTES_MAX[token.root.alg]} bytes.", limit="token")
    return PREFIX + base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


# --- reading: canonical or refused
# -------------------------------------------------------------------------------------


def decode(text: str) -> Token:
    """Read a token strictly; whatever is not the one way to write it is `Malformed`."""
    return open_envelope(text).read()


class TokenEnvelope(NamedTuple):
    """A token of which only the beginning was read: whose signature over which root it claims to have."""

    whole: bytes
    data: bytes
    signature: bytes
    alg: str
    kid: str

    def read(self) -> Token:
        """Read everything."""
        _, _, _, blocks, proof = _list(cbor.decode(self.whole), 5)
        root = decode_root(self.data)
        read = _decode_blocks(_items(blocks), VALUES_TOTAL_MAX - sum(len(caveat.values) for caveat in root.caveats))
        token = Token(self.data, root, self.signature, read, _decode_proof(proof))
        if len(token.caveats) > CAVEATS_MAX:
            raise _bad("it has too many caveats")
        check_scopes(root.aud, token.caveats)
        return token


def open_envelope(text: str) -> TokenEnvelope:
    """Read the beginning; what that costs does not grow with what is inside."""
    whole = _bytes_of(text)
    version, data, signature = cbor.first_items(whole, 3)
    if version != VERSION:
        raise _bad("its version is unknown")
    first = cbor.first_items(_of(data, bytes), 6)
    if first[0::2] != [0, 1, 2]:
        raise _bad("its root has other fields")
    alg, kid = _one_of(first[3], ALGORITHMS), read_name(first[5])
    if len(text) > len(PREFIX) + -(-BYTES_MAX[alg] * 4 // 3):
        raise _bad("it is too long")
    return TokenEnvelope(whole, _of(data, bytes), _of(signature, bytes), alg, kid)


def _decode_blocks(listed: list[Any], room: int) -> tuple[Block, ...]:
    if len(listed) > BLOCKS_MAX:
        raise _bad("it has too many blocks")
    read = []
    for each in listed:
        read.append(_decode_block(each, room))
        room -= sum(len(caveat.values) for caveat in read[-1].caveats)
    return tuple(read)


def _bytes_of(text: str) -> bytes:
    if len(text) > TEXT_CHARS_MAX or not text.startswith(PREFIX) or not text.isascii():
        raise _bad("its text is not of this kind")
    body = text[len(PREFIX) :]
    try:
        data = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
    except binascii.Error as exc:
        raise _bad("its text is not base64url") from exc
    # The decoder skips foreign characters and ignores trailing bits: only the one text of these bytes is theirs.
    if base64.urlsafe_b64encode(data).rstrip(b"=") != body.encode("ascii"):
        raise _bad("its text is not canonical base64url")
    return data


def _decode_block(value: object, room: int) -> Block:
    data, signature = (_of(item, bytes) for item in _list(value, 2))
    caveats, epk = _list(cbor.decode(data), 2)
    _sized(signature, SIGNATURE_BYTES)
    return Block(data, signature, _caveats(caveats, room), read_public(_of(epk, bytes)))


def _decode_proof(value: object) -> tuple[int, bytes]:
    kind, data = _list(value, 2)
    if kind == BEARER and type(kind) is int:
        return BEARER, _sized(_of(data, bytes), SEED_BYTES)
    if kind == SEALED:
        return SEALED, _sized(_of(data, bytes), SIGNATURE_BYTES)
    raise _bad("its proof is of no known kind")


def decode_root(data: bytes) -> TokenRoot:
    """Read a root: every field is there, of its type, within its bounds, and nothing else is."""
    fields = cast("dict[int, Any]", _of(cbor.decode(data), dict))
    if not fields.keys() <= _ROOT_KEYS or not fields.keys() >= _ROOT_KEYS - _OPTIONAL or fields[0] != VERSION:
        raise _bad("its root has other fields")
    return TokenRoot(
        alg=_one_of(fields[1], ALGORITHMS),
        kid=read_name(fields[2]),
        epoch=_number(fields[3]),
        iss=read_name(fields[4]),
        aud=_audience(fields[5]),
        sub=read_name(fields[6]),
        tenant=read_tenant(read_name(fields[7])) if 7 in fields else None,
        class_=cast("TrafficClass", _one_of(fields[8], CLASSES)),
        via=_via(fields[9]) if 9 in fields else (),
        iat=_number(fields[10]),
        nbf=_number(fields[11]),
        exp=_number(fields[12]),
        tid=_sized(_of(fields[13], bytes), ID_BYTES),
        caveats=_caveats(fields[14]),
        epk=read_public(_sized(_of(fields[15], bytes), PUBLIC_BYTES)),
    )


def read_tenant(name: str) -> str:
    """Take a tenant's name; the space of subjects is not open to it."""
    if name.startswith("sub:"):
        raise Malformed("A tenant's name does not begin with sub:.", reason="bad_tenant")
    return name


def read_audience(names: tuple[str, ...]) -> tuple[str, ...]:
    """Take an audience: one or several known names, each once."""
    if not names or len(set(names)) != len(names) or not set(names) <= set(AUDIENCES):
        raise _no_audience(names)
    return names


def _no_audience(names: tuple[str, ...]) -> Malformed:
    """Refuse an audience; for a route, which only the gateway sets when it forwards, say how to be bound to it."""
    refusal = Malformed(f"An audience is one or several of {', '.join(AUDIENCES)}.", reason="bad_audience")
    routes = [name.removeprefix(ROUTE_AUDIENCE) for name in names if name.startswith(ROUTE_AUDIENCE)]
    if routes:
        refusal.facts["hint"] = f"For a route, take the audience {GATEWAY} and the caveat route={','.join(routes)}."
    return refusal


def _audience(value: object) -> tuple[str, ...]:
    return read_audience(tuple(map(read_name, _items(value))))


def _via(value: object) -> tuple[IssuingLevel, ...]:
    listed = _items(value)
    if len(listed) > VIA_LEVELS_MAX:
        raise _bad("its lineage is too long")
    levels = tuple(map(_level, listed))
    check_via(levels)
    if not levels or not all(level.ids for level in levels):
        raise _bad("its lineage is empty")
    return levels


def _level(value: object) -> IssuingLevel:
    items = _items(value)
    if items and type(items[0]) is list:
        ids, sub, owner, kid, epoch = _list(value, 5)
        return IssuingLevel(_ids(ids), read_name(sub), read_name(owner), read_name(kid), _number(epoch))
    return IssuingLevel(_ids(items))


def _ids(value: object) -> tuple[bytes, ...]:
    return tuple(_sized(_of(item, bytes), ID_BYTES) for item in _items(value))


def check_via(levels: tuple[IssuingLevel, ...]) -> None:
    """Bound a lineage."""
    if len(levels) > VIA_LEVELS_MAX or sum(len(level.ids) for level in levels) > VIA_IDS_MAX:
        raise Malformed("The lineage of the token is too long.", reason="lineage_too_long")


def _caveats(value: object, room: int = VALUES_TOTAL_MAX) -> tuple[Caveat, ...]:
    """Read caveats; how many values they have is counted before any of them is looked at."""
    items = _items(value)
    if len(items) > CAVEATS_MAX or sum(len(item) - 1 for item in items if type(item) is list) > room:
        raise _bad("it has too many caveats")
    return tuple(map(from_wire, items))


def _of(value: object, kind: Callable[..., T]) -> T:
    if type(value) is not kind:
        raise _bad("a field has another type")
    return cast("T", value)


def _items(value: object) -> list[Any]:
    return cast("list[Any]", _of(value, list))


def _list(value: object, length: int) -> list[Any]:
    items = _items(value)
    if len(items) != length:
        raise _bad("a list has another length")
    return items


def _sized(data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise _bad("a field has another size")
    return data


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value <= NUMBER_MAX:
        raise _bad("a number is out of range")
    return value


def read_name(value: object) -> str:
    """Take a name: printable text, so that it can be logged, compared and shown as what it is."""
    if type(value) is not str or not 1 <= len(value) <= VALUE_CHARS_MAX or not value.isprintable():
        raise _bad("a name is not printable text")
    return value


def _one_of(value: object, words: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in words:
        raise _bad("a word is unknown")
    return value


def _bad(why: str) -> Malformed:
    return Malformed(f"This is not a token: {why}.", reason="malformed")
