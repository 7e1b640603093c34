"""Making tokens: an issuer issues, any holder narrows offline, and a seal ends the narrowing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from penstock.capability import ed25519
from penstock.capability.caveats import CAVEATS_MAX, VALUES_TOTAL_MAX, Caveat, check_scopes, count_values
from penstock.capability.token import (
    BEARER,
    BLOCKS_MAX,
    SEALED,
    Block,
    Token,
    TokenRoot,
    block_input,
    decode,
    encode,
    encode_block,
    encode_root,
    root_input,
    seal_input,
)
from penstock.kernel.errors import Conflict, OverLimit


class UnsignedRoot(msgspec.Struct, frozen=True):
    """A root that waits for its signature, and the seed of the key it commits to."""

    root: TokenRoot
    data: bytes
    seed: bytes

    def __repr__(self) -> str:
        """Show which it is, and nothing that could be used."""
        return f"Draft({self.root.tid.hex()})"

    @property
    def message(self) -> bytes:
        """Return what the issuer's key signs."""
        return root_input(self.root.alg, self.root.kid, self.data)

    def signed(self, signature: bytes) -> Token:
        """Return the token."""
        return Token(self.data, self.root, signature, (), (BEARER, self.seed))


def draft(root: TokenRoot, seed: bytes | None = None) -> UnsignedRoot:
    """Prepare a root for signing; its key is a new one unless a seed is given, whatever `root.epk` holds."""
    seed = os.urandom(ed25519.SEED_BYTES) if seed is None else seed
    committed = replace(root, epk=ed25519.public_of(seed))
    return UnsignedRoot(committed, encode_root(committed), seed)


def mint(root: TokenRoot, sign: Callable[[bytes], bytes], seed: bytes | None = None) -> str:
    """Make a token with a key that is at hand."""
    prepared = draft(root, seed)
    return encode(prepared.signed(sign(prepared.message)))


def attenuate(text: str, caveats: Iterable[Caveat], seed: bytes | None = None) -> str:
    """Narrow a token: needs nothing but the token itself, and only the conjunction can result."""
    token, added = decode(text), tuple(caveats)
    before = _seed(token)
    if len(token.blocks) >= BLOCKS_MAX:
        raise OverLimit(f"A token has at most {BLOCKS_MAX + 1} blocks.", limit="blocks")
    caveats = (*token.caveats, *added)
    if len(caveats) > CAVEATS_MAX or count_values(caveats) > VALUES_TOTAL_MAX:
        raise OverLimit(
            f"A token has at most {CAVEATS_MAX} caveats, with {VALUES_TOTAL_MAX} values together.", limit="caveats"
        )
    check_scopes(token.root.aud, added)
    seed = os.urandom(ed25519.SEED_BYTES) if seed is None else seed
    data = encode_block(added, ed25519.public_of(seed))
    message = block_input(len(token.blocks) + 1, token.chain()[-1], data)
    block = Block(data, ed25519.sign(before, message), added, ed25519.public_of(seed))
    return encode(replace(token, blocks=(*token.blocks, block), proof=(BEARER, seed)))


def seal(text: str) -> str:
    """End the narrowing: the last secret is used once more, over the whole chain, and left out."""
    token = decode(text)
    return encode(replace(token, proof=(SEALED, ed25519.sign(_seed(token), seal_input(token.chain()[-1])))))


def _seed(token: Token) -> bytes:
    kind, data = token.proof
    if kind != BEARER:
        raise Conflict("The token is sealed and cannot be narrowed.", reason="sealed")
    return data
