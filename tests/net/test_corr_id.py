"""Correlation ids: unique, sortable, and UUIDv7 to the letter."""

from __future__ import annotations

from uuid import UUID

import pytest

from penstock.net.corr_id import CorrIds
from penstock.wire.ids import uuid7_ms


class Hands:
    """A wall clock moved by hand."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.5

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def test_ids_are_uuid7_unique_and_sorted_in_the_order_they_were_made() -> None:
    clock = Hands()
    ids = CorrIds(clock)
    made = []
    for _ in range(20):
        made += [ids.make().decode() for _ in range(1000)]
        clock.now += 0.001

    assert len(set(made)) == len(made)
    assert made == sorted(made)
    assert {(UUID(text).version, UUID(text).variant) for text in made} == {(7, "specified in RFC 4122")}
    assert abs(uuid7_ms(made[0]) - 1_700_000_000_500) <= 1


def test_a_wall_clock_that_goes_back_does_not_unsort_them() -> None:
    clock = Hands()
    ids = CorrIds(clock)
    before = ids.make()
    clock.now -= 3600

    assert ids.make() > before


def test_more_ids_than_a_millisecond_holds_run_the_time_ahead() -> None:
    ids = CorrIds(Hands())
    made = [ids.make() for _ in range(10_000)]

    assert made == sorted(set(made))


@pytest.mark.parametrize("given", [b"a", b"x" * 64, b"with space", b'q"\\'])
def test_a_printable_id_of_the_caller_is_kept(given: bytes) -> None:
    assert CorrIds(Hands()).pick(given) == given


@pytest.mark.parametrize("given", [None, b"", b"x" * 65, b"tab\there", b"\xe4"])
def test_anything_else_is_replaced(given: bytes | None) -> None:
    assert len(CorrIds(Hands()).pick(given)) == 36
