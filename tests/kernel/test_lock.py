"""The only lock: thread-safe, ranked, never held across an await."""

from __future__ import annotations

import threading

import pytest

from penstock.kernel import lock as lock_module
from penstock.kernel.lock import HIERARCHY, Lock, LockOrder


def test_threads_exclude_each_other() -> None:
    lock, total = Lock("counters", 3), [0]

    def count() -> None:
        for _ in range(2000):
            with lock:
                value = total[0]
                total[0] = value + 1

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert total == [8000]
    assert lock.acquired == 8000


def test_ranks_are_checked_for_each_thread_apart() -> None:
    low, high = Lock("policy_meta", 1), Lock("counters", 3)
    failed: list[BaseException] = []

    def take_low() -> None:
        try:
            with low:
                low.acquired += 0
        except LockOrder as error:
            failed.append(error)

    with high:
        thread = threading.Thread(target=take_low)
        thread.start()
        thread.join(60)

    assert failed == []


def test_a_refused_lock_is_not_held_and_the_held_one_is_released() -> None:
    low, high = Lock("policy_meta", 1), Lock("counters", 3)
    with pytest.raises(LockOrder, match=r"policy_meta.*counters"), high, low:
        pytest.fail("taken against its rank")

    with low, high:
        assert (low.acquired, high.acquired) == (1, 2)


def test_taking_a_lock_twice_is_told_instead_of_waiting_for_ever() -> None:
    lock = Lock("counters", 3)
    with pytest.raises(LockOrder), lock, lock:
        pytest.fail("a lock was taken twice")


def test_an_error_inside_releases_the_lock() -> None:
    lock = Lock("counters", 3)
    with pytest.raises(KeyError), lock:
        raise KeyError("planted")
    with lock:
        assert lock.acquired == 2


async def test_a_short_section_on_the_loop_is_fine() -> None:
    lock = Lock("counters", 3)
    for _ in range(3):
        with lock:
            lock.acquired += 0

    assert lock.acquired == 3


def test_there_is_no_async_with() -> None:
    assert not hasattr(Lock, "__aenter__")
    assert not hasattr(Lock, "acquire")


def test_without_debug_mode_nothing_is_checked() -> None:
    lock_module.set_debug(on=False)
    low, high = Lock("policy_meta", 1), Lock("counters", 3)
    with high, low:
        assert low.acquired == 1


def test_the_hierarchy_is_that_of_the_seeds() -> None:
    assert sorted(HIERARCHY, key=HIERARCHY.get)[0::1][:2] == ["policy_meta", "state_meta"]
    assert HIERARCHY["policy_meta"] < HIERARCHY["routing_table"] < HIERARCHY["counters"]
    assert HIERARCHY["state_meta"] < HIERARCHY["routing_snapshot"] < HIERARCHY["counters"]
