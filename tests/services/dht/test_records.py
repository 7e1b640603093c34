"""Records: what was signed is what counts, and nobody fills a keeper alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernel.errors import Malformed
from penstock.services.dht.core.ids import to_bytes
from penstock.services.dht.core.record import (
    RECORD_BYTES_MAX,
    SKEW_MS,
    ProviderRecord,
    RecordSigner,
    check_times,
    make_record,
    read_record,
    signatures_hold,
)
from penstock.services.dht.core.record_book import BookLimits, KeepVerdict, RecordBook
from penstock.wire import cbor

NOW_MS = 1_800_000_000_000
SIGNERS = [RecordSigner(bytes([number]) * 32) for number in range(1, 8)]


def record(
    signer: int = 0,
    key: int = 7,
    seq: int = 1,
    *,
    addrs: tuple[str, ...] = ("tcp://127.0.0.1:5302",),
    issued_ms: int = NOW_MS,
    ttl_s: int = 3600,
) -> ProviderRecord:
    """Sign a record."""
    return make_record(SIGNERS[signer], key, addrs, seq=seq, issued_ms=issued_ms, ttl_s=ttl_s)


def body(**changed: cbor.Encodable) -> bytes:
    """Encode a body with some fields changed; `f9=...` sets field 9."""
    signer = SIGNERS[0]
    fields: dict[int, cbor.Encodable] = {
        0: to_bytes(7),
        1: to_bytes(signer.id),
        2: ["a"],
        3: 1,
        4: NOW_MS,
        5: 3600,
        6: signer.keys,
    }
    return cbor.encode({**fields, **{int(name[1:]): value for name, value in changed.items()}})


def signed(data: bytes) -> list[object]:
    """Sign a body, whatever it says."""
    return [data, list(SIGNERS[0].signatures(data))]


def test_a_record_survives_the_wire_and_its_signature_holds() -> None:
    made = record()
    again = read_record(cbor.decode(made.raw))

    assert again == made
    assert signatures_hold(again)


@given(st.integers(0, 10_000))
def test_any_changed_bit_of_a_body_is_found(at: int) -> None:
    made = record()
    changed = bytearray(made.body)
    changed[at // 8 % len(changed)] ^= 1 << at % 8
    try:
        forged = read_record([bytes(changed), list(made.signatures)])
    except Malformed:
        return

    assert not signatures_hold(forged)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        [b"", []],
        [b"\xa0", [b"x"]],
        signed(body(f7=1)),
        signed(body(f1=to_bytes(5))),
        signed(body(f5=59)),
        signed(body(f5=172_801)),
        signed(body(f2=["x" * 257])),
        signed(body(f2=["a"] * 17)),
        signed(body(f2=["\n"])),
        signed(body(f3=-1)),
        signed(body(f6=[])),
        signed(body(f6=[[1, b"\x01" + bytes(31)]])),
        signed(body(f6=[[2, b"x"]])),
        [body(), []],
        [body(), [b"a", b"b"]],
        signed(body(f0=b"short")),
    ],
)
def test_what_is_no_record_is_refused(value: object) -> None:
    with pytest.raises(Malformed):
        read_record(value)


def test_an_oversized_record_is_refused() -> None:
    with pytest.raises(Malformed, match=str(RECORD_BYTES_MAX)):
        read_record([bytes(RECORD_BYTES_MAX), [bytes(64)]])


def test_somebody_elses_key_does_not_make_the_publisher() -> None:
    data = cbor.encode({**_fields(), 6: SIGNERS[1].keys})

    with pytest.raises(Malformed, match="signing key"):
        read_record([data, list(SIGNERS[1].signatures(data))])


def _fields() -> dict[int, cbor.Encodable]:
    return {0: to_bytes(7), 1: to_bytes(SIGNERS[0].id), 2: ["a"], 3: 1, 4: NOW_MS, 5: 3600}


def test_times_are_judged_with_two_minutes_of_skew() -> None:
    made = record(ttl_s=60)

    assert check_times(made, NOW_MS - SKEW_MS) is None
    assert check_times(made, NOW_MS - SKEW_MS - 1) == "future"
    assert check_times(made, NOW_MS + 59_999) is None
    assert check_times(made, NOW_MS + 60_000) == "expired"


def test_both_signatures_of_a_hybrid_record_must_hold() -> None:
    signer = RecordSigner(b"\x09" * 32, post_quantum=True)
    made = make_record(signer, 7, ("a",), seq=1, issued_ms=NOW_MS)
    halved = read_record([made.body, [made.signatures[0], bytes(3309)]])

    assert len(made.keys) == 2
    assert signatures_hold(made)
    assert not signatures_hold(halved)


# --- the book --------------------------------------------------------------------------------------------------------


def test_a_newer_record_replaces_an_older_replayed_or_equal_one_changes_nothing() -> None:
    book = RecordBook()
    first, second = record(seq=1), record(seq=2, addrs=())

    assert book.store(first, None) is KeepVerdict.STORED
    assert book.store(first, None) is KeepVerdict.REPEATED
    assert book.store(second, None) is KeepVerdict.STORED
    assert book.store(first, None) is KeepVerdict.STALE, "a replay does not undo a withdrawal"
    assert book.answer(7, NOW_MS) == [second]
    assert len(book) == 1


def test_another_record_with_the_same_count_changes_nothing() -> None:
    book = RecordBook()
    first, other = record(seq=1), record(seq=1, addrs=("elsewhere",))

    assert book.store(first, None) is KeepVerdict.STORED
    assert book.store(other, None) is KeepVerdict.STALE
    assert book.answer(7, NOW_MS) == [first]


def test_a_record_is_served_until_it_expires() -> None:
    book = RecordBook()
    book.store(record(ttl_s=60), None)

    assert book.answer(7, NOW_MS + 59_999)
    assert book.answer(7, NOW_MS + 60_000) == []
    assert len(book.expire(NOW_MS + 60_000)) == 1
    assert (len(book), book.size_bytes) == (0, 0)


def test_one_key_holds_so_many_records_and_one_publisher_and_network_their_share() -> None:
    book = RecordBook(BookLimits(records_max=16, a_key_max=3, publisher_share=1 / 4, subnet_share=1 / 4))
    for signer in range(3):
        assert book.store(record(signer), None).accepted
    assert book.store(record(3), None) is KeepVerdict.KEY_FULL
    for key in range(100, 105):
        assert book.store(record(4, key), None).accepted, "half empty: anybody may use the room"
    assert book.store(record(4, 200), None) is KeepVerdict.PUBLISHER_FULL
    for key in range(300, 304):
        assert book.store(record(5, key), "subnet").accepted
    assert book.store(record(6, 400), "subnet") is KeepVerdict.SUBNET_FULL
    assert book.store(record(6, 400), None).accepted, "an address that is not global belongs to no network"


def test_a_full_book_refuses_and_keeps_what_it_has() -> None:
    book = RecordBook(BookLimits(records_max=2, publisher_share=1.0))
    for key in (1, 2):
        book.store(record(0, key), None)

    assert book.refusal(record(1, 3), None) is KeepVerdict.FULL
    assert book.store(record(0, 1, seq=2), None) is KeepVerdict.STORED, "a newer one of the same takes no more room"


RECORDS = {(s, k, q): record(s, k, q, ttl_s=60 + 60 * q) for s in range(3) for k in range(3) for q in range(3)}


@settings(max_examples=60)
@given(st.lists(st.one_of(st.sampled_from(sorted(RECORDS)), st.integers(0, 200_000)), max_size=60))
def test_the_book_agrees_with_a_plain_dictionary(steps: list[tuple[int, int, int] | int]) -> None:
    book, model, now = RecordBook(), dict[tuple[int, int], ProviderRecord](), NOW_MS
    for step in steps:
        if isinstance(step, int):
            now += step
            book.expire(now)
            model = {place: kept for place, kept in model.items() if kept.expires_ms > now}
            continue
        offered = RECORDS[step]
        held = model.get((offered.key, offered.publisher))
        if held is None or offered.seq > held.seq:
            model[offered.key, offered.publisher] = offered
        book.store(offered, None)

    assert {(each.key, each.publisher): each for each in book.records()} == model
    assert book.size_bytes == sum(len(each.raw) for each in model.values())
