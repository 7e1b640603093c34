"""A fault points at the line where its key stands, whatever TOML stands around it."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.toml_lines import TomlLines

DOCUMENT = '''# first
top = 1
[http]
  conns = 5   # not = this
"quoted key" = 2
text = """
conns = 6
[gate]
"""
names = [
  "a = 1", # ]
  'b',
]
[ gate . "inner" ]
limits.size = 3
inline = { a = 1, b = [
  2] }
literal = \'\'\'
x = 1\'\'\'
[[gate.routes]]
prefix = "/a"

[[gate.routes]]
prefix = "/b"
'''


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("top", 2), ("http", 3), ("http.conns", 4), ("http.quoted key", 5), ("http.text", 6), ("http.names", 10),
        ("gate.inner", 14), ("gate.inner.limits.size", 15), ("gate.inner.inline", 16), ("gate.inner.literal", 18),
        ("gate.routes[0]", 20), ("gate.routes[0].prefix", 21), ("gate.routes[1].prefix", 24),
    ],
)  # fmt: skip
def test_every_key_and_table_has_its_line(name, line):
    assert TomlLines(DOCUMENT).find(name) == line


def test_what_has_no_line_of_its_own_gets_that_of_what_holds_it():
    lines = TomlLines(DOCUMENT)

    assert lines.find("gate.inner.inline.a") == 16
    assert lines.find("gate.routes[1].timeout") == 23
    assert lines.find("nowhere") is None


def test_windows_line_ends_count_like_others():
    assert TomlLines("a = 1\r\n[t]\r\nb = 2\r\n").find("t.b") == 3


KEYS = st.sampled_from(["a", "b.c", '"x y"', "'q.q'", "d"])
VALUES = st.sampled_from(
    [
        "1",
        '"s = # ["',
        "'''\nk = 1\n[t]'''",
        '"""\\"""" ',
        "[1,\n# ]\n[2]]",
        "{ z = 1 }",
        '"""a""""',
        "1979-05-27",
        "''",
    ]
)
LINES = st.one_of(
    st.builds(lambda key, value: f"{key} = {value}", KEYS, VALUES),
    st.builds(lambda key: f"[{key}]", KEYS),
    st.builds(lambda key: f"[[{key}]]", KEYS),
    st.sampled_from(["", "# x = 1", "  ", "\t# ['"]),
)


@given(st.lists(LINES, max_size=12))
def test_whatever_toml_accepts_has_a_line_for_each_top_level_name(statements):
    text = "\n".join(statements)
    try:
        tree = tomllib.loads(text)
    except ValueError:
        return
    lines = TomlLines(text)

    for name in tree:
        first_words = text.split("\n")[lines.find(name) - 1].lstrip(" [\"'")
        assert first_words.startswith(name)
