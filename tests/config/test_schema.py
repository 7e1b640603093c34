"""A schema is data that checks itself: what contradicts itself never gets as far as an operator."""

from __future__ import annotations

import pytest

from penstock.config.kinds import Kind
from penstock.config.schema import (
    Derived,
    Key,
    KeyRule,
    Schema,
    Table,
)
from tests.config.samples import SCHEMA


def test_a_default_outside_its_own_range_is_a_bug():
    with pytest.raises(ValueError, match="breaks its own rule"):
        Key("wait", Kind.DURATION, "9s", low="1s", high="5s")


def test_a_default_that_is_no_choice_is_a_bug():
    with pytest.raises(ValueError, match="breaks its own rule"):
        Key("mode", Kind.CHOICE, "best", choices=("fair", "fast"))


def test_a_key_defined_twice_is_a_bug():
    with pytest.raises(ValueError, match="twice"):
        Schema([Table("a", (Key("x", Kind.INT, 1), Key("x", Kind.INT, 2)))])


@pytest.mark.parametrize(
    "table",
    [
        Table("a", (Key("x", Kind.INT, Derived(("a.y",), int, "")),)),
        Table("a", (Key("x", Kind.INT, 1, inherits="b.x"),)),
        Table("a", (Key("x", Kind.INT, 1),), (KeyRule(("a.x", "a.y"), lambda x, y: x < y, ""),)),
    ],
)
def test_a_reference_to_a_key_that_is_not_there_is_a_bug(table):
    with pytest.raises(ValueError, match="does not have"):
        Schema([table])


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("gate.cons", "gate.conns"), ("spare_adr", "gate.spare_addr"), ("gate.hook.secrt", "gate.hook.secret"),
    ("htp", "http"),
     ("gate.zzzzzzzzzz", None)],
)  # fmt: skip
def test_a_wrong_name_finds_the_nearest_right_one(wrong, right):
    assert SCHEMA.nearest(wrong) == right


def test_a_name_sets_a_value_an_entry_or_the_place_of_a_secret():
    assert SCHEMA.find("gate.conns").part == "value"
    assert SCHEMA.find("gate.weights.low").entry == "low"
    assert SCHEMA.find("gate.hook.secret_env").part == "_env"
    assert SCHEMA.find("gate.hook.keys_file").part == "_file"
    assert SCHEMA.find("gate.title_env") is None
    assert SCHEMA.find("gate.conns.low") is None


def test_bounds_are_written_for_people():
    assert SCHEMA.keys["gate.size"].range_text() == "1KiB..1MiB"
    assert SCHEMA.keys["gate.per_peer"].range_text() == ">= 1; 0 = off"
    assert SCHEMA.keys["gate.mode"].range_text() == "fair, fast"
