"""Names, rows and claims: what is written can be read, and what was changed is found."""

from __future__ import annotations

import random

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.contracts.mailbox_rules import check_envelope, hash_chain
from penstock.kernel.errors import Integrity
from penstock.services.mailbox.claims import IdemClaims, IdemClaimTable, _ClaimPart, claim_hash
from penstock.services.mailbox.deliveries import _envelopes
from penstock.services.mailbox.ids import SEQ_MAX, Receipts, make_msg_id, read_msg_id
from penstock.services.mailbox.ledger import Now
from penstock.services.mailbox.rows import (
    KIND_LEASED,
    IdemClaim,
    MessageRow,
    MessageState,
    columns_of,
    read_row,
    read_state,
)
from penstock.services.mailbox.shards.topics import Lane, Message, Topic
from penstock.wire.ids import uuid7_ms

ROWS = st.builds(
    lambda payload, **more: MessageRow(payload=payload, payload_hash=blake3(payload).digest(), **more),
    st.binary(max_size=40),
    seq=st.integers(1, SEQ_MAX),
    slot=st.integers(0, 4095),
    topic=st.integers(1, 1000),
    key=st.none() | st.text(min_size=1, max_size=5),
    ts=st.integers(0, 1 << 47),
    expires=st.none() | st.integers(0, 1 << 47),
    nonce=st.integers(0, 65535),
    corr_id=st.text(max_size=5),
    idem_key=st.none() | st.text(min_size=1, max_size=5),
    attrs=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
    group=st.none() | st.text(min_size=1, max_size=5),
    meta=st.none() | st.binary(max_size=5),
    origin=st.none() | st.tuples(st.text(max_size=5), st.integers(0, 1 << 47)),
)
PLAIN_ROWS = st.builds(lambda row: replace(row, key=None, expires=None, group=None, meta=None, origin=None), ROWS)


@given(st.integers(0, (1 << 48) - 1), st.integers(0, SEQ_MAX), st.integers(0, 4095), st.integers(0, 65535))
def test_msg_id_says_what_it_was_made_of(ts: int, seq: int, slot: int, nonce: int) -> None:
    text = make_msg_id(ts, seq, slot, nonce)

    assert read_msg_id(text) == (ts, seq, slot, nonce)
    assert uuid7_ms(text) == ts
    assert read_msg_id(text.upper()) in (None, (ts, seq, slot, nonce))


@pytest.mark.parametrize("text", ["", "nobody", "x" * 36, "0" * 36, "01a1e125-e46b-4000-8000-00001fdd07c7"])
def test_what_is_no_msg_id_is_not_read(text: str) -> None:
    assert read_msg_id(text) is None


@given(st.integers(0, 4095), st.integers(0, SEQ_MAX), st.integers(0, (1 << 63) - 1), st.integers(0, 26 * 8 - 1))
def test_receipt_cannot_be_changed_or_guessed(slot: int, seq: int, gen: int, bit: int) -> None:
    receipts = Receipts(bytes(32))
    text = receipts.make(slot, seq, gen)

    assert receipts.read(text) == (seq, gen)
    assert Receipts(b"\1" * 32).read(text) is None
    swapped = "A" if text[bit % 36] != "A" else "B"
    assert receipts.read(text[: bit % 36] + swapped + text[bit % 36 + 1 :]) is None


@given(st.lists(st.tuples(st.integers(0, 4095), st.integers(0, SEQ_MAX), st.integers(0, (1 << 63) - 1)), max_size=5))
def test_receipts_made_together_are_those_made_one_by_one(leases: list[tuple[int, int, int]]) -> None:
    receipts = Receipts(b"\2" * 32)

    assert receipts.make_all(leases) == [receipts.make(*lease) for lease in leases]


@given(st.lists(ROWS | PLAIN_ROWS, max_size=6))
def test_rows_written_together_are_those_written_one_by_one(rows: list[MessageRow]) -> None:
    assert columns_of(rows) == [row.columns() for row in rows]


@given(st.lists(ROWS | PLAIN_ROWS, min_size=1, max_size=6), st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_envelopes_of_one_answer_have_the_chain_and_the_address_of_the_contract(
    rows: list[MessageRow], times: list[int]
) -> None:
    lane = Lane(Topic(1, "orders"))
    rows = [replace(row, ts=ts) for row, ts in zip(rows, times, strict=False)]
    leased = [(Message.of(row, lane), 1) for row in rows]

    for envelope in _envelopes(leased, rows, Now(0.0, 0), 8, {}):
        check_envelope(envelope)


@given(ROWS)
def test_row_is_read_as_it_was_written(row: MessageRow) -> None:
    assert read_row(row.columns()) == row
    assert row.chain("t") == hash_chain("t", row.ts, row.idem_key, row.address, row.attrs)


@given(ROWS, st.integers(0, 9), st.integers(0, 7))
def test_changed_column_of_a_row_is_found(row: MessageRow, place: int, bit: int) -> None:
    columns = list(row.columns())
    value = columns[place]
    if isinstance(value, bytes):
        columns[place] = bytes([value[0] ^ 1 << bit, *value[1:]]) if value else b"x"
    else:
        columns[place] = 0 if value is None else value ^ 1 << bit

    with pytest.raises(Integrity):
        read_row(tuple(columns))


@pytest.mark.parametrize("place", range(8))
def test_changed_column_of_a_state_is_found(place: int) -> None:
    state = MessageState(7, KIND_LEASED, 1000, 2, 99, ((5, "visibility"),))
    columns = list(state.columns())
    assert read_state(tuple(columns)) == state
    columns[place] = columns[place] + 1 if isinstance(columns[place], int) else b"\x90" + columns[place][1:] + b"\0"

    with pytest.raises(Integrity):
        read_state(tuple(columns))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=200))
def test_claim_table_agrees_with_a_dictionary(steps: list[tuple[bool, int]]) -> None:
    table, oracle, numbers = IdemClaimTable(1000), {}, {}
    for number, (add, which) in enumerate(steps):
        # Few different beginnings: entries collide and wrap.
        name = bytes(7) + bytes([which % 3]) + bytes([which]) * 8 if which < 3 else bytes([which]) * 16
        if add and name[:8] not in oracle:
            table.put([claim_hash(name)], number)
            oracle[name[:8]] = number
            numbers[number] = name
        elif not add and oracle:
            gone = min(oracle.values())
            table.take_out(gone)
            del oracle[numbers.pop(gone)[:8]]
        for each in (bytes([w]) * 16 for w in range(3, 31)):
            assert table.find(each) == oracle.get(each[:8])
            assert table.holds_any([bytes([200]) * 16, each]) == (each[:8] in oracle)


def test_no_step_of_the_claim_table_moves_more_than_a_few_thousand_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    table, draw, moved, most = IdemClaimTable(100_000), random.Random(7), [0], 0
    grow = _ClaimPart._grow

    def counted(part: _ClaimPart) -> None:
        moved[0] += part.used
        grow(part)

    monkeypatch.setattr(_ClaimPart, "_grow", counted)
    for first in range(0, 100_000, 250):
        moved[0] = 0
        table.put([draw.getrandbits(64) for _ in range(250)], first)
        most = max(most, moved[0])

    assert 0 < most < 5000


def test_hashes_of_claims_that_are_over_are_given_up() -> None:
    def name(second: int, n: int) -> bytes:
        return n.to_bytes(4, "big") + bytes([second]) * 12

    claims = IdemClaims(5000, window_ms=1000)
    for second in range(20):
        number = claims.number(Now(0.0, second * 1000), 1000)
        claims.made([IdemClaim(number + n, name(second, n), b"", "", 0, 0) for n in range(1000)])
        while claims.live > 2000:
            claims.forget(Now(0.0, second * 1000))

    assert claims.find(name(19, 5)) == 19_005
    assert claims.find(name(3, 5)) is None
    assert len(claims._table._chunks) <= 4


def test_claims_are_bounded_and_never_pushed_out_while_they_hold() -> None:
    claims = IdemClaims(3, window_ms=1000)
    for second in range(3):
        claims.number(Now(0.0, second * 1000))
    assert claims.full(Now(0.0, 1500))

    assert not claims.full(Now(0.0, 10_000))
