"""The configuration reference as Markdown, written from the schema so that it cannot drift."""

from __future__ import annotations

from penstock.config.kinds import Kind
from penstock.config.schema import REQUIRED, SECRET_KINDS, Key, Schema, Table
from penstock.config.settings import default_plain

_HEADER = ("Key", "Kind", "Default", "Range", "Change", "Meaning")


def docs_table(schema: Schema) -> str:
    """Write one Markdown section a table of the schema, with a row for every key."""
    return "\n".join(_section(table) for table in schema.tables)


def docs_page(schema: Schema) -> str:
    """Write the whole generated page: a title, how to read it, and the sections."""
    intro = (
        "# Configuration reference\n\n"
        "Generated from the schema; do not edit. `live` keys take effect at the next reload, `rebind` keys move a\n"
        "listener without losing a connection, `restart` keys keep their old value until the node starts again.\n"
        "An indented name is a field of the list of tables above it.\n"
    )
    return f"{intro}\n{docs_table(schema)}"


def _section(table: Table) -> str:
    rows = [row for key in table.keys for row in _rows(f"{table.name}.{key.name}", key)]
    lines = [f"## `[{table.name}]`", "", table.help, "", _line(_HEADER), _line(["---"] * len(_HEADER))]
    return "\n".join([*lines, *map(_line, rows), ""])


def _rows(name: str, key: Key) -> list[tuple[str, ...]]:
    fields = [(f"&nbsp;&nbsp;`{field.name}`", *_cells(field)) for field in key.fields]
    return [(f"`{name}`", *_cells(key)), *fields]


def _cells(key: Key) -> tuple[str, ...]:
    return _kind(key), _default(key), key.range_text(), key.apply.value, _meaning(key)


def _kind(key: Key) -> str:
    kind = f"{key.kind.value} of {key.item.value}" if key.kind in (Kind.LIST, Kind.MAP) else key.kind.value
    return f"{kind} ({key.unit})" if key.unit else kind


def _default(key: Key) -> str:
    own = _own_default(key)
    return f"`{key.inherits}`, else {own}" if key.inherits else own


def _own_default(key: Key) -> str:
    if key.default is REQUIRED:
        return "required"
    default = default_plain(key)
    if isinstance(default, bool):
        return "true" if default else "false"
    return "none" if default in (None, [], {}) else str(default)


def _meaning(key: Key) -> str:
    if key.kind not in SECRET_KINDS:
        return key.help
    leaf = key.name.rpartition(".")[2]
    return f"{key.help} Or `{leaf}_env`: the variable, `{leaf}_file`: the file that holds it."


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
