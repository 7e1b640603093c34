"""What a benchmark measured: kept in `results/`, and printed as a table or as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"


def report(area: str, rows: list[dict[str, Any]], table: Table, *, as_json: bool) -> None:
    """Keep the rows of an area, and print them."""
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(rows, indent=2)
    (RESULTS / f"{area}.json").write_text(text + "\n")
    if as_json:
        print(text)
    else:
        Console().print(table)
