"""What an error tells the caller to do: by table, or by the error itself."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from penstock.contracts import mailbox as m
from penstock.kernel.errors import (
    BY_CODE,
    Forbidden,
    Lagging,
    NotFound,
    OverLimit,
    PenstockError,
    Timeout,
    Unauthenticated,
    taxonomy,
)
from penstock.net.advice import advice
from penstock.net.problem import problem
from penstock.net.server.route import Route, Router
from penstock.wire.plain_words import age_text, fault_facts, near_word, near_words, plain_fault, size_text

PAGE = (Path(__file__).parents[2] / "docs" / "errors.md").read_text()


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_every_code_has_a_section_in_the_docs_it_points_to(code: str) -> None:
    assert f"\n## {code}\n" in PAGE


def test_a_problem_says_what_to_do_and_where_to_read_more() -> None:
    body = msgspec.json.decode(problem(Unauthenticated(reason="missing"), "c").body)

    assert body["docs"] == "docs/errors.md#unauthenticated"
    assert body["hint"].startswith("Send a token")


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_every_code_has_a_next_step(code: str) -> None:
    kind = BY_CODE[code]
    given = {"op": "x", "budget_s": 1.0} if kind is Timeout else {"limit": "x"} if kind is OverLimit else {}

    assert msgspec.json.decode(problem(kind(**given), "c").body)["hint"]  # type: ignore[arg-type] # by its own kind


@pytest.mark.parametrize("kind", taxonomy()[1:], ids=lambda kind: kind.__name__)
def test_what_a_problem_says_about_asking_again_agrees(kind: type[PenstockError]) -> None:
    given = {"op": "x", "budget_s": 1.0} if kind is Timeout else {"limit": "x"} if kind is OverLimit else {}
    error = kind(1) if kind is Lagging else kind(**given)
    said = msgspec.json.decode(problem(error, "c").body)

    assert said["retryable"] or "retry_after" not in said
    assert said["retryable"] or "ask again" not in said.get("hint", "").lower()


def test_an_error_that_knows_better_is_heard() -> None:
    said = msgspec.json.decode(problem(OverLimit("x", limit="body", hint="Do this."), "c").body)

    assert said["hint"] == "Do this."
    assert "hint" not in advice(OverLimit("x", limit="body", hint="Do this."))


def test_an_error_from_a_node_prints_everything_one_needs_and_others_only_what_happened() -> None:
    error = Forbidden("No.", reason="caveat:op", hint="Ask.", url="POST http://h/v1/send", corr_id="c-1")

    assert str(error) == "No. Ask. (forbidden, POST http://h/v1/send, reason caveat:op, corr_id c-1)"
    assert str(Forbidden("No.", reason="caveat:op")) == "No."


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (1, "1 byte"), (704 << 10, "704 KiB"), (1 << 20, "1 MiB"), (2_000_000, "1.9 MiB")],
)
def test_sizes_are_written_as_people_do(count: int, text: str) -> None:
    assert size_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.44, "0.4s"), (12, "12s"), (125, "2m 5s"), (3600, "1h"), (270_000, "3d 3h"), (-1, "0.0s")]
)
def test_ages_have_their_two_largest_units(seconds: float, text: str) -> None:
    assert age_text(seconds) == text


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"topic": "a b", "payload_b64": b""},
            (
                "topic holds letters, digits and . _ : / - only, as in orders/eu; "
                "no part between slashes is empty, one dot or two."
            ),
        ),
        ({"topic": "", "payload_b64": b""}, "topic must be at least 1 characters."),
        ({"topic": "a"}, "The field payload_b64 is missing."),
        ({"topic": "a", "payload_b64": b"", "colour": 1}, "There is no field colour."),
        ({"topic": "a", "payload_b64": b"", "delay_ms": -1}, "delay_ms must be at least 0."),
    ],
)
def test_a_broken_rule_is_a_sentence_about_its_field(fields: dict[str, object], said: str) -> None:
    with pytest.raises(msgspec.ValidationError) as broken:
        msgspec.convert(fields, m.Send, builtin_types=(bytes,))

    assert plain_fault(str(broken.value)) == said


@pytest.mark.parametrize(
    ("body", "said", "facts"),
    [
        (
            b'{"topic": "a", "max_messages": 999}',
            "max_messages must be at most 256.",
            {"field": "max_messages", "limit": "max_messages", "limit_value": 256, "hint": "Give 256 or less."},
        ),
        (b"[true, tru]", "The body is no JSON: invalid character (byte 11, counted from 1).", {}),
        (b'{"topic": ', "The body is no JSON: it ends too early.", {}),
    ],
)
def test_a_broken_rule_brings_its_limit_and_a_next_step(body: bytes, said: str, facts: dict[str, object]) -> None:
    with pytest.raises(msgspec.DecodeError) as broken:
        msgspec.json.decode(body, type=m.Recv if body.startswith(b"{") else list[bool])
    told = fault_facts(str(broken.value))

    assert plain_fault(str(broken.value)) == said
    assert told["hint"]
    assert told.items() >= facts.items()


def test_what_is_no_base64_is_said_of_its_field() -> None:
    with pytest.raises(msgspec.ValidationError) as broken:
        msgspec.json.decode(b'{"topic": "a", "payload_b64": "a"}', type=m.Send)

    assert plain_fault(str(broken.value)) == "payload_b64 is no Base64 text."
    assert str(fault_facts(str(broken.value))["hint"]).startswith("Encode the bytes as Base64")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("max_atempts", "There is no field max_atempts. Did you mean max_attempts?"),
        ("window", "There is no field window. Did you mean window_s?"),  # of a struct inside
        ("colour", "There is no field colour."),
        ("x" * 100_000, f"There is no field {'x' * 100_000}."),
    ],
)
def test_a_misspelt_field_is_answered_with_the_one_that_was_meant(name: str, said: str) -> None:
    with pytest.raises(msgspec.ValidationError) as broken:
        msgspec.convert({name: 1}, m.TopicSettings)

    assert plain_fault(str(broken.value), m.TopicSettings) == said


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("topik", "topic"),
        ("payloud", "payload"),
        ("idemkey", "idem_key"),
        ("IdemKey", "idem_key"),
        ("delayms", "delay_ms"),
        ("delay", "delay_ms"),
        ("visiblity_ms", "visibility_ms"),
        ("payload_b65", "payload_b64"),
        ("max-messages", "max_messages"),
        ("max", "max_messages"),  # only begun
        ("kye", "key"),  # two letters swapped
        ("colour", None),
        ("date", None),
        ("x", None),
        ("", None),
        ("_", None),
        ("x" * 100_000, None),
    ],
)
def test_a_misspelt_word_is_answered_with_the_one_that_is_near_and_a_far_one_with_none(
    word: str, meant: str | None
) -> None:
    known = ("topic", "payload", "payload_b64", "idem_key", "key", "delay_ms", "visibility_ms", "max_messages", "state")

    assert near_word(word, known) == meant


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("max", "There is no field max. Did you mean max_messages or max_bytes?"),
        ("max_b", "There is no field max_b. Did you mean max_bytes?"),
        ("MaxBytes", "There is no field MaxBytes. Did you mean max_bytes?"),
        ("visibilty_ms", "There is no field visibilty_ms. Did you mean visibility_ms?"),
    ],
)
def test_a_field_that_is_the_beginning_of_several_is_answered_with_each(word: str, said: str) -> None:
    with pytest.raises(msgspec.ValidationError) as broken:
        msgspec.convert({"topic": "t", word: 1}, m.Recv)

    assert plain_fault(str(broken.value), m.Recv) == said


def test_of_many_words_that_begin_alike_three_are_named() -> None:
    assert near_words("max", ["max_a", "max_b", "max_a", "min", "max_c", "max_d"]) == ["max_a", "max_b", "max_c"]


def test_a_word_that_is_only_begun_is_meant_rather_than_one_that_looks_alike() -> None:
    assert near_word("top", ["op", "topic"]) == "topic"


def test_a_word_that_differs_by_its_underscores_alone_is_meant_before_any_other() -> None:
    assert near_word("topicset", ["topicsets", "topic_set"]) == "topic_set"


def test_a_slash_inside_a_name_is_explained() -> None:
    router = Router([Route(method="POST", path="/v1/send/{topic}", handler=lambda _request: None)])

    with pytest.raises(NotFound) as missing:
        router.match("POST", ("v1", "send", "orders", "eu"))
    with pytest.raises(NotFound) as elsewhere:
        router.match("POST", ("v2", "send", "orders", "eu"))

    assert missing.value.facts["hint"].endswith("/v1/send/orders%2Feu")
    assert elsewhere.value.facts["hint"] == "/openapi.json lists every path of this port."


def test_the_root_of_a_port_says_what_the_port_is_and_where_to_read_on() -> None:
    router = Router([Route(method="GET", path="/v1/x", handler=lambda _request: None)], "svc-mailbox")

    with pytest.raises(NotFound, match="This port is svc-mailbox of a penstock node") as bare:
        router.match("GET", ())
    assert "/openapi.json" in bare.value.facts["hint"]
    assert advice(bare.value) | bare.value.facts == {"docs": "docs/README.md", "hint": bare.value.facts["hint"]}


def test_a_route_that_takes_the_root_is_served_there() -> None:
    router = Router([Route(method="GET", path="/{rest*}", handler=lambda _request: None)])

    assert router.match("GET", ())[1] == {"rest": ""}
