"""Builds the known-answer vectors from fixed keys: `python -m tests.capability.vectors` writes the file again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from penstock.capability import ed25519
from penstock.capability.making import seal
from penstock.capability.token import (
    BEARER,
    PREFIX,
    IssuingLevel,
    block_input,
    decode,
    encode_root,
    root_input,
    seal_input,
)
from tests.capability.kit import ISSUER_SEED, NOW, Issuer, narrowed, rebuilt, seed

FILE = Path(__file__).parent.parent / "vectors" / "capability.json"
BLOCKS = (("op=send,recv",), ("topic=orders/", f"exp={NOW + 600}"))


def build() -> dict[str, Any]:
    """Return everything another implementation needs to check itself."""
    issuer = Issuer()
    plain = issuer.token()
    full = issuer.token(
        "op=send,recv,ack",
        "topic=orders/",
        "ip=10.0.0.0/8",
        "budget.reqs=100",
        "amnesia=false",
        via=((b"t" * 16, b"r" * 16),),
    )
    chained = narrowed(plain, *BLOCKS)
    issued = Issuer().token("op=send", via=(IssuingLevel((b"t" * 16, b"r" * 16), "boss", "acme", "k1", 0),))
    good = {
        "root only": plain,
        "every kind of caveat": full,
        "two blocks": chained,
        "sealed": seal(chained),
        "issued by another": issued,
    }
    return {
        "keys": {
            "issuer_seed": ISSUER_SEED.hex(),
            "issuer_public": issuer.public.hex(),
            "kid": "k1",
            "root_ephemeral_seed": seed(100).hex(),
            "block_ephemeral_seeds": [seed(n).hex() for n in (1, 2)],
        },
        "now": NOW,
        "request": {"aud": "svc-mailbox", "op": "send", "topic": "orders/eu", "ip": "10.1.2.3"},
        "good": [_described(name, text) for name, text in good.items()],
        "refused": [
            {"name": name, "token": text, "reason": reason} for name, text, reason in _refused(issuer, chained)
        ],
        "refused_public_keys": sorted(point.hex() for point in ed25519.SMALL_ORDER),
    }


def _described(name: str, text: str) -> dict[str, Any]:
    token = decode(text)
    chain = token.chain()
    inputs = [root_input(token.root.alg, token.root.kid, token.data)]
    inputs += [block_input(n, chain[n - 1], block.data) for n, block in enumerate(token.blocks, 1)]
    return {
        "name": name,
        "token": text,
        "root": encode_root(token.root).hex(),
        "blocks": [block.data.hex() for block in token.blocks],
        "signing_inputs": [each.hex() for each in inputs],
        "signatures": [token.signature.hex(), *(block.signature.hex() for block in token.blocks)],
        "chain": [value.hex() for value in chain],
        "seal_input": seal_input(chain[-1]).hex(),
        "caveats": [str(caveat) for caveat in token.caveats],
    }


def _refused(issuer: Issuer, chained: str) -> list[tuple[str, str, str]]:
    whole, sealed, other = decode(chained), decode(seal(chained)), decode(narrowed(issuer.token(sub="bob"), *BLOCKS))
    other_seal = decode(seal(narrowed(issuer.token(sub="bob"), *BLOCKS))).proof
    bad = "bad_signature"
    return [
        ("last block cut off", rebuilt(whole, blocks=whole.blocks[:1]), bad),
        ("all blocks cut off", rebuilt(whole, blocks=()), bad),
        ("last block of a sealed token cut off", rebuilt(sealed, blocks=sealed.blocks[:1]), bad),
        ("blocks swapped", rebuilt(whole, blocks=whole.blocks[::-1]), bad),
        ("first block of another token", rebuilt(whole, blocks=(other.blocks[0], whole.blocks[1])), bad),
        ("last block of another token", rebuilt(whole, blocks=(whole.blocks[0], other.blocks[1])), bad),
        ("seal of another token", rebuilt(sealed, proof=other_seal), bad),
        ("seed of the root", rebuilt(whole, proof=(BEARER, seed(100))), bad),
        ("seed of an earlier block", rebuilt(whole, proof=(BEARER, seed(1))), bad),
        ("signature of another root", rebuilt(whole, signature=other.signature), bad),
        ("padding", chained + "=", "malformed"),
        ("another prefix", chained.replace(PREFIX, "psp2_"), "malformed"),
        ("unknown key", issuer.token(kid="k9"), "unknown_kid"),
        ("expired", issuer.token(exp=NOW), "expired"),
        ("not yet valid", issuer.token(nbf=NOW + 61), "not_yet_valid"),
        ("wrong audience", issuer.token(aud=("svc-dht",)), "caveat:aud"),
        ("wrong op", issuer.token("op=recv"), "caveat:op"),
        ("wrong topic", narrowed(issuer.token(), ("topic=order",)), "caveat:topic"),
        ("another tenant", narrowed(issuer.token(), ("tenant=victim",)), "caveat:tenant"),
        ("another class", narrowed(issuer.token(), ("scope=internal",)), "caveat:scope"),
    ]


def write() -> None:
    """Write the file."""
    FILE.write_text(json.dumps(build(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
