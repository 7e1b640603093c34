"""Frames, envelopes, answers and HELLO: what is read is what was written, and nothing else is taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.errors import Malformed
from penstock.services.dht.core.record import RecordSigner
from penstock.services.dht.protocol import envelope as e
from penstock.services.dht.protocol import hello, messages
from penstock.services.dht.protocol.frames import FRAME_BYTES_MAX, FrameOversized, FrameSplitter, frame
from penstock.wire import cbor
from tests.services.dht.making import contact

PAYLOADS = st.binary(max_size=300)
NUMBERS = st.one_of(st.integers(0, 300), st.integers(0, (1 << 64) - 1))


@given(st.lists(PAYLOADS, max_size=6), st.lists(st.integers(1, 50), max_size=40))
def test_frames_come_out_whole_however_they_are_cut(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(frame(body) for body in bodies)
    splitter, found = FrameSplitter(), list[bytes]()
    for cut in [*cuts, len(stream)]:
        piece, stream = stream[:cut], stream[cut:]
        found += splitter.feed(piece)

    assert found == bodies
    assert not splitter.pending


@pytest.mark.parametrize("size", [0, 1, FRAME_BYTES_MAX])
def test_frames_of_the_allowed_sizes_are_taken(size: int) -> None:
    assert FrameSplitter().feed(frame(bytes(size))) == [bytes(size)]


def test_a_frame_one_byte_too_large_is_skipped_and_the_next_is_unharmed() -> None:
    splitter = FrameSplitter()
    stream = frame(bytes(FRAME_BYTES_MAX + 1)) + frame(b"next")
    found = [each for at in range(0, len(stream), 65_536) for each in splitter.feed(stream[at : at + 65_536])]

    assert found == [b"next"]
    assert splitter.oversized == 1


def test_an_absurd_length_ends_the_connection_before_anything_is_kept_for_it() -> None:
    with pytest.raises(FrameOversized):
        FrameSplitter().feed(b"\xff\xff\xff\xff")


@given(
    st.sampled_from(list(e.Opcode)), st.integers(1, (1 << 64) - 1), st.sampled_from((e.REQ, e.RESP)), PAYLOADS, NUMBERS
)
def test_an_envelope_is_read_as_it_was_written_by_both_decoders(
    opcode: e.Opcode, corr: int, flags: int, payload: bytes, ts: int
) -> None:
    (body,) = FrameSplitter().feed(e.encode_envelope(opcode, corr, flags, payload, ts))

    read = e.decode_envelope(body)
    assert read == e.DhtEnvelope(1, opcode, corr, ts, 0, flags, payload)
    assert read == e._decode_any(body)


@given(st.binary(max_size=200), st.integers(0, 2000), st.booleans())
def test_the_quick_decoder_never_takes_what_the_strict_one_refuses(noise: bytes, at: int, whole: bool) -> None:
    body = bytearray(e.encode_envelope(e.Opcode.PING, 7, e.REQ, noise, 1_700_000_000)[4:])
    if whole:
        body = bytearray(noise)
    elif body:
        body[at // 8 % len(body)] ^= 1 << at % 8
    quick = e._decode_usual(bytes(body))

    if quick is not None:
        assert quick == e._decode_any(bytes(body))


@pytest.mark.parametrize(
    "body",
    [
        b"\xa7\x00\x01\x01\x05\x02\x18\x05\x03\x00\x04\x00\x05\x01\x06\x54" + bytes(20),
        b"\xa7\x00\x01\x01\x05\x02\x05\x03\x19\x00\x05\x04\x00\x05\x01\x06\x54" + bytes(20),
        b"\xa7\x00\x01\x01\x05\x02\x05\x03\x00\x04\x00\x05\x01\x06\x58\x14" + bytes(20),
    ],
)
def test_numbers_in_longer_forms_than_they_need_are_refused_by_both_decoders(body: bytes) -> None:
    assert e._decode_usual(body) is None
    with pytest.raises(Malformed):
        e.decode_envelope(body)


def test_a_ping_takes_the_short_way_too() -> None:
    body = e.encode_envelope(e.Opcode.PING, 1, 1, messages.EMPTY, 1_700_000_000)[4:]

    assert e._decode_usual(body) == e._decode_any(body)
    assert [e._decode_usual(body[:end]) for end in range(len(body))] == [None] * len(body)


def test_unknown_fields_of_an_envelope_are_ignored() -> None:
    body = cbor.encode({0: 1, 1: 5, 2: 9, 3: 0, 4: 0, 5: 1, 6: b"", 7: "later"})

    assert e.decode_envelope(body).corr_id == 9


@pytest.mark.parametrize("flags", [0, 3, 8])
def test_an_envelope_is_a_request_or_an_answer(flags: int) -> None:
    with pytest.raises(Malformed):
        e.decode_envelope(cbor.encode({0: 1, 1: 5, 2: 9, 3: 0, 4: 0, 5: flags, 6: b""}))


CONTACTS = [contact(number << 200, f"10.0.0.{number}", 5000 + number) for number in range(1, 21)]


def test_twenty_contacts_come_back_and_are_the_same_objects_the_second_time() -> None:
    payload = messages.find_answer(CONTACTS)
    first, second = messages.read_answer(payload), messages.read_answer(payload)

    assert first.contacts == CONTACTS
    assert all(one is two for one, two in zip(first.contacts, second.contacts, strict=True))


@given(st.integers(0, 20), st.integers(0, 12_000), st.binary(max_size=4))
def test_a_damaged_answer_is_malformed_or_read_as_the_strict_decoder_reads_it(count: int, at: int, tail: bytes) -> None:
    payload = bytearray(messages.find_answer(CONTACTS[:count]) + tail)
    payload[at // 8 % len(payload)] ^= 1 << at % 8
    try:
        strict = messages._read_any(bytes(payload), group_private=False)
    except Malformed:
        with pytest.raises(Malformed):
            messages.read_answer(bytes(payload))
    else:
        assert messages.read_answer(bytes(payload)) == strict


# --- HELLO -----------------------------------------------------------------------------------------------------------

LISTENER, DIALLER = RecordSigner(b"\x01" * 32), RecordSigner(b"\x02" * 32)
SAID = hello.Transcript(b"l" * 32, b"d" * 32, LISTENER.id, DIALLER.id)


def introduced(transcript: hello.Transcript = SAID) -> hello.Introduction:
    return hello.read_introduction(hello.introduction(DIALLER, transcript, [("127.0.0.1", 5302)]))


def test_both_proofs_hold_for_their_own_connection() -> None:
    said = introduced()

    assert said.dialler == DIALLER.id
    assert said.listen[0].id == DIALLER.id
    assert hello.dialler_holds(said, SAID)
    assert hello.listener_holds(hello.confirmation(LISTENER, SAID), SAID)


@pytest.mark.parametrize(
    "other",
    [
        SAID._replace(listener_nonce=b"x" * 32),
        SAID._replace(dialler_nonce=b"x" * 32),
        SAID._replace(listener=5),
        SAID._replace(dialler=5),
    ],
)
def test_a_proof_is_worth_nothing_on_another_connection_or_for_another_node(other: hello.Transcript) -> None:
    assert not hello.dialler_holds(introduced(), other)
    assert not hello.listener_holds(hello.confirmation(LISTENER, SAID), other)


def test_one_role_cannot_speak_for_the_other() -> None:
    mirrored = SAID._replace(listener=DIALLER.id)
    said = introduced(mirrored)
    borrowed = cbor.encode({0: said.key, 1: said.signature})

    assert hello.dialler_holds(said, mirrored)
    assert not hello.listener_holds(borrowed, mirrored), "the same key and nonces, but the other role"


@given(st.binary(max_size=120))
def test_noise_is_no_hello(noise: bytes) -> None:
    for read in (hello.read_greeting, hello.read_introduction):
        with pytest.raises(Malformed):
            read(noise)
