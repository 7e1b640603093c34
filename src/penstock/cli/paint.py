"""Tables for people; nothing here decides anything."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

_console = Console()


def inventory(services: dict[str, dict[str, list[dict[str, Any]]]]) -> None:
    """Print every table of every service."""
    for service, tables in services.items():
        for name, rows in tables.items():
            _print(f"{service}: {name}", rows)


def _print(title: str, rows: list[dict[str, Any]]) -> None:
    columns = [column for column in rows[0] if column not in ("item", "full", "backoff", "crash_loop")]
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column.replace("_", " "))
    for row in rows:
        table.add_row(*(_text(row.get(column, "")) for column in columns))
    _console.print(table)


def status(node: dict[str, Any]) -> None:
    """Print the verdict first, then a row for each service."""
    verdict = "[red]fatal[/]" if node["fatal"] else "[green]ready[/]" if node["ready"] else "[yellow]not ready[/]"
    why = (
        f" ({node['fatal']})"
        if node["fatal"]
        else f" (missing: {', '.join(node['missing'])})"
        if node["missing"]
        else ""
    )
    _console.print(f"node: {verdict}{why}")
    table = Table()
    for column in ("service", "phase", "ready", "gates to look at", "queues", "dropped", "restarts"):
        table.add_column(column, no_wrap=column in ("service", "phase"))
    for row in node["services"]:
        queues = [queue for queue in row["channels"] if queue["kind"] == "mpsc"]
        table.add_row(
            row["service"],
            row["phase"],
            "yes" if row["ready"] else "no",
            ", ".join(
                [*(f"{gate} shut" for gate in row["missing"]), *(f"{gate} degraded" for gate in row["degraded"])]
            ),
            _depths(queues),
            str(sum(queue["dropped"] for queue in queues)),
            str(row["restarts"]),
        )
    _console.print(table)


def _depths(queues: list[dict[str, Any]]) -> str:
    """Name what is waiting; a service may have dozens of queues, and nobody reads the empty ones."""
    waiting = [f"{queue['name']} {queue['depth']}/{queue['capacity']}" for queue in queues if queue["depth"]]
    return " ".join(waiting) or f"{len(queues)} empty"


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
