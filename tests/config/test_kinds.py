"""Every kind reads what people write, refuses the rest, and writes what it can read again."""

from __future__ import annotations

import pickle
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.kinds import (
    SCALARS,
    BadValue,
    HostPort,
    Kind,
    Secret,
    format_duration,
    format_size,
    parse_address,
    parse_duration,
    parse_size,
)

CENTURY_MS = 36_500 * 86_400_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250ms", 0.25), ("5s", 5), ("10m", 600), ("24h", 86_400), ("7d", 604_800), ("1.5s", 1.5), ("0s", 0)],
)
def test_durations_are_read_as_seconds(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["5", "", "s", "5 s", "-5s", "5S", "1.0005s", "0.5ms", "5us", "٣s", "36501d", "9" * 14 + "d"]
)
def test_a_duration_without_a_unit_or_below_a_millisecond_is_refused(text):
    with pytest.raises(BadValue):
        parse_duration(text)


@given(st.integers(0, CENTURY_MS))
def test_a_written_duration_reads_back_the_same(millis):
    assert parse_duration(format_duration(millis / 1000)) == millis / 1000


@pytest.mark.parametrize("text", ["60s", "24h", "1h", "10m", "7d", "250ms", "1s", "90s"])
def test_durations_are_written_as_people_write_them(text):
    assert format_duration(parse_duration(text)) == text


@given(st.integers(0, 1 << 60))
def test_a_written_size_reads_back_the_same(size):
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize(("text", "size"), [("64KiB", 65_536), ("1MiB", 1 << 20), ("65536", 65_536), ("12B", 12)])
def test_sizes_take_a_unit_or_plain_bytes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "1MB", "1kb", "-1", "1.5MiB", "KiB", "9999999TiB"])
def test_a_size_in_another_form_is_refused(text):
    with pytest.raises(BadValue):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:80", "127.0.0.1", 80), ("[::1]:0", "::1", 0), ("gate.example:65535", "gate.example", 65_535)],
)
def test_addresses_are_host_and_port_and_write_back_the_same(text, host, port):
    address = parse_address(text)

    assert address == HostPort(host, port)
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["", "80", ":80", "host", "host:", "host:65536", "host:-1", "::1:80", "[127.0.0.1]:80", "a b:80", "host:८०"]
)
def test_an_address_without_a_clear_host_and_port_is_refused(text):
    with pytest.raises(BadValue):
        parse_address(text)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("localhost.evil.example", False)],
)  # fmt: skip
def test_only_loopback_is_loopback(host, loopback):
    assert HostPort(host, 1).is_loopback is loopback


@pytest.mark.parametrize("word", ["true", "yes", "on", "1", "TRUE", "On"])
def test_words_for_true_are_true(word):
    assert SCALARS[Kind.BOOL].text(word) is True


@pytest.mark.parametrize("word", ["", "2", "maybe", "enabled"])
def test_a_word_that_is_neither_true_nor_false_is_refused_not_guessed(word):
    with pytest.raises(BadValue):
        SCALARS[Kind.BOOL].text(word)


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (Kind.INT, True), (Kind.INT, 1.0), (Kind.INT, "1"), (Kind.INT, 10**30), (Kind.FLOAT, float("nan")),
        (Kind.FLOAT, float("inf")), (Kind.FLOAT, True), (Kind.FLOAT, 10**400), (Kind.BOOL, 1), (Kind.STR, 1),
        (Kind.STR, "a\x00b"), (Kind.DURATION, 5), (Kind.SIZE, True), (Kind.SIZE, -1), (Kind.PATH, ""),
        (Kind.ADDRESS, 80),
    ],
)  # fmt: skip
def test_a_toml_value_of_the_wrong_type_is_refused(kind, raw):
    with pytest.raises(BadValue):
        SCALARS[kind].value(raw)


def test_a_secret_shows_itself_only_when_asked():
    secret = Secret("hunter2")

    assert "hunter2" not in f"{secret} {secret!r} {[secret]}"
    assert secret.reveal() == "hunter2"
    with pytest.raises(TypeError):
        pickle.dumps(secret)


def test_secrets_compare_by_value_so_that_a_reload_sees_a_change():
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert hash(Secret("a")) == hash(Secret("a"))


@given(st.sampled_from(sorted(SCALARS)), st.text())
def test_reading_any_text_gives_a_value_or_the_rule_it_broke(kind, text):
    codec = SCALARS[kind]
    with suppress(BadValue):
        value = codec.text(text)
        assert codec.text(codec.show(value)) == value
