"""A token is one text of one chain: every cut, swap, graft, flip and lax spelling of it is refused."""

from __future__ import annotations

import base64
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.capability import ed25519
from penstock.capability.caveats import VALUES_TOTAL_MAX, parse, parse_all
from penstock.capability.making import attenuate, mint, seal
from penstock.capability.token import (
    BEARER,
    BLOCKS_MAX,
    PREFIX,
    SEALED,
    Block,
    IssuingLevel,
    Token,
    decode,
    decode_root,
    encode,
    encode_block,
    encode_root,
    seal_input,
)
from penstock.kernel.errors import Conflict, Malformed, OverLimit, PenstockError
from penstock.wire import cbor
from tests.capability.kit import Issuer, narrowed, rebuilt, seed

BAD = "unauthenticated:bad_signature"
MALFORMED = "unauthenticated:malformed"
BLOCKS = (("op=send,recv",), ("topic=orders/",), ("op=send",))


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


def texts(data: bytes) -> str:
    return PREFIX + base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def raw(token: str) -> bytes:
    body = token.removeprefix(PREFIX)
    return base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))


def test_what_is_written_is_read_back(issuer):
    token = narrowed(issuer.token("op=send", via=((b"t" * 16, b"r" * 16),)), *BLOCKS)

    assert encode(decode(token)) == token
    assert encode(decode(seal(token))) == seal(token)


@pytest.mark.parametrize(
    "fields", [{}, {"tenant": None}, {"via": ((b"t" * 16, b"r" * 16),)}, {"tenant": None, "via": ((b"t" * 16,),)}]
)
def test_a_root_put_together_from_parts_is_the_canonical_map(issuer, fields):
    data = decode(issuer.token("op=send", "exp=5", **fields)).data

    assert cbor.encode(cbor.decode(data)) == data


def test_whole_chain_and_its_sealed_form_are_good(issuer):
    token = narrowed(issuer.token(), *BLOCKS)

    assert issuer.verdict(token) == "ok"
    assert issuer.verdict(seal(token)) == "ok"


@pytest.mark.parametrize("keep", range(3))
def test_every_truncation_of_the_blocks_is_refused(issuer, keep):
    whole = decode(narrowed(issuer.token(), *BLOCKS))
    issuer.verdict(encode(whole))  # its prefixes are known now, which must not help

    assert issuer.verdict(rebuilt(whole, blocks=whole.blocks[:keep])) == BAD


@pytest.mark.parametrize("keep", range(3))
def test_every_truncation_of_a_sealed_token_is_refused(issuer, keep):
    whole = decode(seal(narrowed(issuer.token(), *BLOCKS)))
    issuer.verdict(encode(whole))

    assert issuer.verdict(rebuilt(whole, blocks=whole.blocks[:keep])) == BAD


@pytest.mark.parametrize("order", [order for order in itertools.permutations(range(3)) if order != (0, 1, 2)])
def test_every_order_of_the_blocks_but_their_own_is_refused(issuer, order):
    whole = decode(narrowed(issuer.token(), *BLOCKS))
    issuer.verdict(encode(whole))

    assert issuer.verdict(rebuilt(whole, blocks=tuple(whole.blocks[i] for i in order))) == BAD


def test_blocks_made_with_one_reused_key_cannot_be_swapped(issuer):
    parent = issuer.token()
    one = attenuate(attenuate(parent, parse_all(["op=send"]), seed(100)), parse_all(["topic=a/"]), seed(100))
    whole = decode(one)

    assert issuer.verdict(rebuilt(whole, blocks=whole.blocks[::-1])) == BAD


@pytest.mark.parametrize("place", range(3))
def test_a_block_of_another_token_is_refused(issuer, place):
    # The same seeds in both: only the chain value tells them apart.
    mine, other = (decode(narrowed(issuer.token(), *BLOCKS)) for _ in range(2))
    blocks = list(mine.blocks)
    blocks[place] = other.blocks[place]

    assert issuer.verdict(rebuilt(mine, blocks=tuple(blocks))) == BAD


def test_a_seal_moved_to_another_token_is_refused(issuer):
    mine, other = (decode(seal(narrowed(issuer.token(), *BLOCKS))) for _ in range(2))

    assert issuer.verdict(rebuilt(mine, proof=other.proof)) == BAD


@pytest.mark.parametrize("earlier", [100, 1, 2])
def test_the_seed_of_an_earlier_block_is_no_proof(issuer, earlier):
    whole = decode(narrowed(issuer.token(), *BLOCKS))

    assert issuer.verdict(rebuilt(whole, proof=(BEARER, seed(earlier)))) == BAD


@pytest.mark.parametrize("earlier", [100, 1, 2])
def test_a_seal_by_an_earlier_key_is_no_proof(issuer, earlier):
    whole = decode(narrowed(issuer.token(), *BLOCKS))
    sealed = (SEALED, ed25519.sign(seed(earlier), seal_input(whole.chain()[-1])))

    assert issuer.verdict(rebuilt(whole, proof=sealed)) == BAD


@pytest.mark.parametrize("proof", [[2, bytes(32)], [0, bytes(64)], [1, bytes(32)], [0], [], [-1, bytes(32)]])
def test_a_token_without_exactly_one_known_proof_is_refused(issuer, proof):
    envelope = cbor.decode(raw(issuer.token()))
    envelope[4] = proof

    assert issuer.verdict(texts(cbor.encode(envelope))) == MALFORMED


def test_a_closed_block_has_no_proof_and_is_refused(issuer):
    whole = decode(narrowed(issuer.token(), ("op=send",)))
    data = cbor.encode([[], None])
    envelope = [1, whole.data, whole.signature, [[data, whole.blocks[0].signature]], list(whole.proof)]

    assert issuer.verdict(texts(cbor.encode(envelope))) == MALFORMED


def test_every_bit_flip_is_refused(issuer):
    token = raw(narrowed(issuer.token("op=send", "topic=orders/"), ("op=send",)))
    survivors = []
    for place in range(len(token) * 8):
        flipped = bytearray(token)
        flipped[place // 8] ^= 1 << place % 8
        if issuer.verdict(texts(bytes(flipped))) == "ok":
            survivors.append(place)

    assert survivors == []


def test_every_bit_flip_of_a_sealed_token_is_refused(issuer):
    token = raw(seal(issuer.token()))
    flips = (bytes(b ^ (1 << p % 8) if i == p // 8 else b for i, b in enumerate(token)) for p in range(len(token) * 8))

    assert not any(issuer.verdict(texts(flipped)) == "ok" for flipped in flips)


def test_every_byte_cut_off_the_text_is_refused(issuer):
    token = issuer.token()

    assert {issuer.verdict(token[:end]) for end in range(1, len(token))} <= {MALFORMED}


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t + "=",
        lambda t: t + "A",
        lambda t: " " + t,
        lambda t: t + "\n",
        lambda t: t[:40] + "!" + t[40:],
        lambda t: t.replace("psp1_", "psp2_"),
        lambda t: t.replace("psp1_", "PSP1_"),
        lambda t: "psp1_" + t.removeprefix("psp1_").replace("_", "/").replace("-", "+") + " ",
        lambda t: t + "\u00e9",
        lambda t: "psp1_",
        lambda t: "psp1_" + "A" * 20_000,
    ],
)
def test_a_lax_spelling_of_a_good_token_is_refused(issuer, change):
    assert issuer.verdict(change(issuer.token())) == MALFORMED


def test_trailing_bits_of_the_last_character_are_refused(issuer):
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    drawn = (issuer.token(sub="a" * length) for length in range(1, 9))
    token = next(text for text in drawn if len(text.removeprefix(PREFIX)) % 4 in (2, 3))
    others = [token[:-1] + other for other in alphabet if other != token[-1]]

    assert "ok" not in {issuer.verdict(other) for other in others}


def test_no_token_is_missing_not_malformed(issuer):
    assert issuer.verdict("") == "unauthenticated:missing"


@given(st.binary(max_size=400))
def test_bytes_that_are_no_token_are_refused_without_a_crash(data):
    with pytest.raises(Malformed):
        decode(texts(data))


@given(st.text(max_size=60))
def test_text_that_is_no_token_is_refused_without_a_crash(text):
    assert Issuer().verdict(text).startswith("unauthenticated:")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (0, 2), (1, "none"), (1, ""), (2, ""), (2, b"k1"), (3, -1), (3, 1 << 60), (5, []), (5, ["svc-mailbox"] * 2),
        (5, ["elsewhere"]), (6, ""), (6, "a\nb"), (7, ""), (7, "sub:bob"), (8, "root"), (9, []), (9, [[]]),
        (9, [[b"x" * 16]] * 5), (9, [[b"x" * 16] * 17]), (9, [[b"x" * 15]]), (12, "soon"), (13, b"x" * 15),
        (14, [[99, "x"]]), (14, [[17, "x"]]), (14, [[5, "fly"]]), (14, [[5]]), (14, [[10, "1"]]), (14, [[16, 2]]),
        (14, [[]]), (14, [5]), (14, [[9, "10.0.0.1/8"]]), (14, [[5, "send", "send"]]), (15, bytes(31)), (15,
        bytes(32)), (16, 0),
    ],
)  # fmt: skip
def test_a_signed_root_with_a_wrong_field_is_refused(issuer, key, value):
    whole = decode(issuer.token("op=send"))
    fields = {**cbor.decode(whole.data), key: value}

    assert issuer.verdict(rebuilt(whole, data=cbor.encode(fields))) == MALFORMED


@pytest.mark.parametrize("key", [0, 1, 2, 3, 4, 5, 6, 8, 10, 11, 12, 13, 14, 15])
def test_a_root_without_one_of_its_fields_is_refused(issuer, key):
    whole = decode(issuer.token())
    fields = cbor.decode(whole.data)
    del fields[key]

    assert issuer.verdict(rebuilt(whole, data=cbor.encode(fields))) == MALFORMED


def test_a_sealed_token_cannot_be_narrowed_or_sealed_again(issuer):
    sealed = seal(issuer.token())

    for attempt in (lambda: attenuate(sealed, ()), lambda: seal(sealed)):
        with pytest.raises(Conflict):
            attempt()


def test_eight_blocks_are_good_and_a_ninth_is_refused(issuer):
    token = narrowed(issuer.token(), *[("op=send",)] * BLOCKS_MAX)
    assert issuer.verdict(token) == "ok"

    with pytest.raises(OverLimit):
        attenuate(token, ())
    whole = decode(token)
    longer = (*whole.blocks, Block(encode_block((), seed(9)), bytes(64), (), seed(9)))
    assert issuer.verdict(rebuilt(whole, blocks=longer)) == MALFORMED


def test_sixty_four_caveats_are_good_and_one_more_is_refused(issuer):
    token = issuer.token(*["op=send"] * 40)
    assert issuer.verdict(narrowed(token, ("op=send",) * 24)) == "ok"

    with pytest.raises(OverLimit):
        attenuate(token, parse_all(["op=send"] * 25))


def test_a_token_over_four_kibibytes_cannot_be_made(issuer):
    with pytest.raises(OverLimit):
        issuer.token(*[f"topic={'x' * 200}{n}" for n in range(25)])


def test_re_signed_by_another_key_is_refused(issuer):
    other = ed25519.expand(seed(77))[1]
    forged = mint(issuer.root(), lambda message: ed25519.sign_with(other, message))

    assert issuer.verdict(forged) == BAD


def test_the_signature_of_another_root_is_refused(issuer):
    mine, other = decode(issuer.token()), decode(issuer.token(sub="eve"))

    assert issuer.verdict(rebuilt(other, signature=mine.signature)) == BAD


def test_a_caveat_taken_out_of_a_block_is_refused(issuer):
    whole = decode(narrowed(issuer.token(), ("op=recv",)))
    block = whole.blocks[0]
    emptied = Block(encode_block((), block.epk), block.signature, (), block.epk)

    assert issuer.verdict(rebuilt(whole, blocks=(emptied,))) == BAD


@pytest.mark.parametrize("point", sorted(ed25519.SMALL_ORDER))
def test_a_key_of_small_order_is_refused_when_it_is_read(issuer, point):
    with pytest.raises(PenstockError):
        ed25519.read_public(point)
    data = encode_block((), seed(1))[:-32] + point
    whole = decode(narrowed(issuer.token(), ("op=send",)))
    envelope = [1, whole.data, whole.signature, [[data, whole.blocks[0].signature]], list(whole.proof)]
    assert issuer.verdict(texts(cbor.encode(envelope))) == MALFORMED


@pytest.mark.parametrize("low", range(19))
def test_a_key_that_is_not_canonical_is_refused_when_it_is_read(low):
    number = (1 << 255) - 19 + low

    with pytest.raises(Malformed):
        ed25519.read_public(number.to_bytes(32, "little"))


def test_library_refuses_small_order_keys_where_they_verify_too():
    for point in ed25519.SMALL_ORDER:
        assert not ed25519.holds(point, b"anything", point + bytes(32))


def test_a_lineage_of_either_form_is_read_back_as_it_was_written():
    issuer = Issuer()
    via = (IssuingLevel((b"t" * 16, b"r" * 16)), IssuingLevel((b"u" * 16,), "boss", "sub:boss", "k1", 3))

    assert decode(issuer.token(via=via)).root.via == via


@pytest.mark.parametrize(
    "level",
    [
        [[b"t" * 16], "boss", "acme", "k1"],
        [[b"t" * 16], "boss", "acme", "k1", 3, 4],
        [[], "boss", "acme", "k1", 3],
        [[b"t" * 15], "boss", "acme", "k1", 3],
        [[b"t" * 16], "", "acme", "k1", 3],
        [[b"t" * 16], "boss", "acme", "k1", -1],
        [[b"t" * 16], "boss", "acme", 7, 3],
        [],
    ],
)
def test_a_lineage_of_any_other_form_is_refused(level):
    issuer = Issuer()
    fields = cbor.decode(decode(issuer.token()).data)
    assert isinstance(fields, dict)

    with pytest.raises(Malformed):
        decode_root(cbor.encode(dict(sorted({**fields, 9: [level]}.items()))))


def test_the_values_of_all_caveats_together_are_bounded_however_they_are_spread():
    issuer = Issuer()
    many = [f"topic={','.join(f'{n}{m}' for m in range(32))}" for n in range(VALUES_TOTAL_MAX // 32)]
    full = issuer.token(*many[:8])
    assert decode(narrowed(full, tuple(many[8:])))

    with pytest.raises(OverLimit):
        narrowed(full, (*many[8:], "op=send"))
    with pytest.raises(Malformed):
        parse_all([*many, "op=send"])


@pytest.mark.parametrize("blocks", [0, 1, 7])
def test_a_token_with_too_many_values_is_no_token_and_nothing_is_proven(issuer, blocks):
    words = [f"region={','.join(f'{n:x}{m:x}' for m in range(16))}" for n in range(VALUES_TOTAL_MAX // 16 + 1)]
    spread = [tuple(map(parse, words[place :: blocks + 1])) for place in range(blocks + 1)]
    data = encode_root(replace(issuer.root(), caveats=spread[0], epk=issuer.public))
    added = tuple(Block(encode_block(each, issuer.public), bytes(64), each, issuer.public) for each in spread[1:])

    with pytest.raises(Malformed, match="too many"):
        decode(encode(Token(data, issuer.root(), bytes(64), added, (BEARER, bytes(32)))))
