"""A memo never holds more than its capacity, and what it holds is what was put there last."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.inventory import Inventory
from penstock.kernel.memo import Memo


@given(capacity=st.integers(1, 20), keys=st.lists(st.integers(0, 40), max_size=120))
def test_a_memo_stays_within_its_capacity_and_agrees_with_what_was_put(capacity, keys):
    memo, last = Memo(capacity), {}
    for number, key in enumerate(keys):
        assert memo.put(key, number) == number
        last[key] = number

        assert len(memo) <= capacity
        assert memo.get(key) == number
    assert all(last[key] == value for key, value in memo.items.items())


def test_a_full_memo_forgets_the_eighth_that_was_put_in_first():
    memo = Memo(16)
    for key in range(17):
        memo.put(key, key)

    assert list(memo.items) == list(range(2, 17))
    assert memo.forgotten == 2


def test_an_entry_that_is_renewed_pushes_nobody_out():
    memo = Memo(2)
    for key in (1, 2, 1, 2):
        memo.put(key, key)

    assert (len(memo), memo.forgotten) == (2, 0)


def test_what_was_dropped_or_cleared_is_not_found():
    memo = Memo(4)
    memo.put(1, "a")
    memo.put(2, "b")
    memo.drop(1)
    memo.drop(7)

    assert (memo.get(1), memo.get(2)) == (None, "b")
    memo.clear()
    assert (memo.get(2), len(memo)) == (None, 0)


def test_a_key_that_comes_once_takes_no_entry():
    memo = Memo[int, str](4)
    memo.put(0, "kept")

    for key in range(1, 100):
        assert memo.put_again(key, "once") == "once"

    assert (len(memo), memo.get(0)) == (1, "kept")


def test_a_key_that_comes_again_is_remembered():
    memo = Memo[int, str](4)

    memo.put_again(1, "first")
    memo.put_again(1, "second")

    assert memo.get(1) == "second"


def test_keys_that_came_once_are_bounded_too():
    memo = Memo[int, str](4)

    for key in range(100):
        memo.put_again(key, "once")
        assert len(memo._offered) <= 4


def test_a_memo_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one entry"):
        Memo(0)


def test_a_declared_memo_is_listed_with_what_it_holds():
    inventory = Inventory("test")
    memo = inventory.memo("digests", Memo(4))
    for key in range(5):
        memo.put(key, key)

    (row,) = inventory.rows()["limits"]
    assert row == {
        "name": "digests",
        "kind": "memo",
        "capacity": 4,
        "policy": "full: the oldest are forgotten",
        "in_use": 4,
        "forgotten": 1,
    }
