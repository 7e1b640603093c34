"""The reference page has every key with its kind, default, range and meaning, and stays a table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.config.document import docs_page, docs_table
from penstock.config.sources import env_name
from penstock.config.tables import node_schema
from penstock.services.echo.config import TABLE as ECHO
from tests.config.samples import SCHEMA

GUIDE = Path(__file__).parents[2] / "docs" / "configuration.md"


@pytest.mark.parametrize("schema", [SCHEMA, node_schema()])
def test_every_key_has_a_row(schema):
    page = docs_page(schema)

    assert [name for name in schema.keys if f"| `{name}` |" not in page] == []


def test_every_row_has_the_same_columns():
    rows = [line for line in docs_table(SCHEMA).splitlines() if line.startswith("|")]

    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {7}


def test_defaults_are_told_as_an_operator_would_write_them():
    table = docs_table(SCHEMA)

    assert "| `gate.size` | size | 64KiB | 1KiB..1MiB | live |" in table
    assert "| `gate.conns` | int | `http.conns`, else 50 | 1..500 |" in table
    assert "| &nbsp;&nbsp;`prefix` | str | required |" in table
    assert "`secret_env`" in table


def test_the_page_is_the_same_each_time():
    assert docs_page(node_schema()) == docs_page(node_schema())


def test_the_guides_examples_are_valid_settings():
    known = {*node_schema(ECHO).keys, "key"}
    names = set(re.findall(r"--set ([a-z_.]+)=", GUIDE.read_text()))
    variables = set(re.findall(r"(PENSTOCK_[A-Z_]*__[A-Z_]+)=", GUIDE.read_text()))

    assert names - known == set()
    assert variables - set(map(env_name, known)) == set()
    assert len(names) > 1
    assert variables
