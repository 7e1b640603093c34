"""One issuer for all nodes of a swarm: a key as long as the process lives, its token and its verifier."""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from penstock.capability import ed25519
from penstock.capability.caveats import parse_all
from penstock.capability.making import mint
from penstock.capability.token import ED25519, TokenRoot
from penstock.capability.trust import KeyRecord, Trust
from penstock.capability.verifier import CapabilityVerifier
from penstock.services.dht.authority import AUDIENCE

if TYPE_CHECKING:
    from penstock.kernel.clock import Clock

LIFE_S: Final = 24 * 3600
_KID: Final = "swarm"


class SwarmKey:
    """Issues one token that may do everything with these nodes, and nothing elsewhere."""

    def __init__(self, clock: Clock) -> None:
        seed = os.urandom(ed25519.SEED_BYTES)
        public, secret = ed25519.expand(seed)
        now_s = int(clock.wall())
        record = KeyRecord(_KID, ED25519, public, b"", now_s - 60, now_s + LIFE_S)
        self.verifier = CapabilityVerifier(Trust(keys=MappingProxyType({_KID: record})), clock)
        root = TokenRoot(
            alg=ED25519,
            kid=_KID,
            epoch=0,
            iss="penstock",
            aud=(AUDIENCE,),
            sub="swarm",
            tenant=None,
            class_="internal",
            via=(),
            iat=now_s,
            nbf=now_s - 60,
            exp=now_s + LIFE_S,
            tid=os.urandom(16),
            caveats=parse_all(["op=*"]),
            epk=public,
        )
        self.token = mint(root, lambda message: ed25519.sign_with(secret, message))
