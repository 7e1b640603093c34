"""The signatures of one token that are not known to hold yet, and its proof: plain computation, on any thread."""

from __future__ import annotations

from typing import Final

from penstock.capability import ed25519
from penstock.capability.judged_token import JudgedToken
from penstock.capability.token import BEARER, HYBRID, block_input, root_input, seal_input

# Checking an ML-DSA signature costs about as much as this many Ed25519 ones.
_HYBRID_WEIGHT: Final = 3


class UnprovenToken:
    """A token that waits for its crypto. `known` is the last chain value whose signatures were proven before, or -1."""

    __slots__ = ("digest", "known", "standing")

    def __init__(self, standing: JudgedToken, digest: bytes, known: int) -> None:
        """Hold everything the check needs, so that it touches nothing shared."""
        self.standing = standing
        self.digest = digest
        self.known = known

    @property
    def signatures(self) -> int:
        """Count the signatures to check; the seed of a bearer token is none."""
        token = self.standing.token
        unknown = len(token.blocks) - max(self.known, 0)
        root = (_HYBRID_WEIGHT if token.root.alg == HYBRID else 1) if self.known < 0 else 0
        return unknown + root + (token.proof[0] != BEARER)

    def run(self) -> bool:
        """Check the root, the blocks in order after the known prefix, and the proof, which is checked always."""
        standing = self.standing
        token, chain = standing.token, standing.chain
        root = token.root
        if self.known < 0 and not standing.record.holds(root_input(root.alg, root.kid, token.data), token.signature):
            return False
        for index in range(max(self.known, 0) + 1, len(token.blocks) + 1):
            block = token.blocks[index - 1]
            signer = root.epk if index == 1 else token.blocks[index - 2].epk
            if not ed25519.holds(signer, block_input(index, chain[index - 1], block.data), block.signature):
                return False
        return self._proof_holds()

    def _proof_holds(self) -> bool:
        token = self.standing.token
        kind, data = token.proof
        if kind == BEARER:
            return ed25519.public_of(data) == token.epk
        return ed25519.holds(token.epk, seal_input(self.standing.chain[-1]), data)
