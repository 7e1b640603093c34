"""Names of topics: whatever can be sent to can be written in a path, and so be looked at, set and deleted."""

from __future__ import annotations

from urllib.parse import quote

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.contracts import mailbox as m
from penstock.contracts.plain_payloads import PlainSend
from penstock.kernel.errors import Malformed
from penstock.wire.plain_words import plain_fault
from penstock.wire.target import split_path

ODD = ["/x", "x/", "x//", "a//b", ".", "..", "a/../b", "./a", "a/.", "/"]


def accepted(name: str, kind: type = m.Send, **fields: object) -> bool:
    try:
        msgspec.convert({"topic": name, **fields}, kind)
    except msgspec.ValidationError:
        return False
    return True


@given(st.text(alphabet="ab.:_-/", min_size=1, max_size=12))
@example("...")
@example("a/...")
@example("a.b/..c/.d")
def test_a_name_is_accepted_exactly_when_it_can_be_written_in_a_path(name: str) -> None:
    try:
        writable = split_path("/v1/topics/" + quote(name, safe=""))[-1] == name
    except Malformed:
        writable = False
    assert accepted(name, payload_b64=b"") == writable


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (m.Send, {"payload_b64": b""}),
        (PlainSend, {"payload": "x"}),
        (m.PutSettings, {"settings": {}}),
    ],
)
def test_nothing_new_has_a_name_with_an_empty_or_a_dot_part(name: str, kind: type, fields: dict[str, object]) -> None:
    assert not accepted(name, kind, **fields)
    assert accepted("orders/eu", kind, **fields)


@pytest.mark.parametrize("name", ODD)
def test_dead_letters_are_not_led_to_such_a_name(name: str) -> None:
    assert not accepted("a", m.Reprocess, limit=1, to=name)
    assert not accepted("a", m.PutSettings, settings={"dead_letter_to": name})
    # What an older node has stored is read all the same.
    assert msgspec.convert({"dead_letter_to": name}, m.TopicSettings).dead_letter_to == name


@pytest.mark.parametrize("name", ODD)
def test_messages_that_an_older_node_took_can_be_received_and_moved(name: str) -> None:
    assert accepted(name, m.Recv)
    assert accepted(name, m.Reprocess, limit=1, to="a")


def test_the_refusal_says_the_rule() -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert({"topic": "a//b", "payload_b64": b""}, m.Send)

    assert plain_fault(str(caught.value), m.Send) == (
        "topic holds letters, digits and . _ : / - only, as in orders/eu; "
        "no part between slashes is empty, one dot or two."
    )
