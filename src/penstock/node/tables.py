"""The generated tables: what the inventory declares, as Markdown under `docs/_generated`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from penstock.config import docs_page
from penstock.contracts.tables import oap_markdown
from penstock.kernel.errors import taxonomy
from penstock.net.problem import may_succeed_later
from penstock.node.build import Node
from penstock.node.concurrency import concurrency_page
from penstock.node.services import schema

if TYPE_CHECKING:
    from penstock.config import Settings, Sources
    from penstock.kernel.metrics import MetricFamily
    from penstock.node.concurrency import Review
    from penstock.node.part import ServicePart

NOTE = "<!-- Written by `scripts/docs` from the code; edits here are overwritten. -->"

_COLUMNS: dict[str, tuple[str, ...]] = {
    "channels": ("name", "kind", "item", "capacity", "producers", "consumers", "policy"),
    "tasks": ("name", "kind", "instances", "critical", "drain", "restart", "backoff", "crash_loop"),
    "locks": ("name", "rank"),
    "limits": ("name", "kind", "capacity", "policy"),
    "timeouts": ("name", "seconds", "effect"),
}


def pages(settings: Settings, sources: Sources, reviews: dict[str, Review]) -> dict[str, str]:
    """Build a node that never starts and write down everything it declares: file name to text."""
    node = Node(settings, sources, token="psp1_documentation")  # noqa: S106 - never checked: this node never listens
    try:
        return {
            "channels.md": _inventory_page("Channels", "channels", node.parts),
            "tasks.md": _inventory_page("Tasks", "tasks", node.parts),
            "locks.md": _inventory_page("Locks", "locks", node.parts),
            "limits.md": _inventory_page("Limits and timeouts", "limits", node.parts, more="timeouts"),
            "metrics.md": _metrics_page(node.parts),
            "errors.md": _errors_page(),
            "routes.md": _routes_page(node.parts),
            "config.md": docs_page(schema()),
            "oap.md": oap_markdown(),
            **{f"concurrency-{_service(part)}.md": concurrency_page(part, reviews) for part in node.parts},
        }
    finally:
        node.forget()


def _service(part: ServicePart) -> str:
    return part.supervisor.service


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Draw a Markdown table."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(_cell(value) for value in row) + " |" for row in rows]
    return "\n".join(lines)


def _cell(value: object) -> str:
    text = {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value
    return str(text).replace("|", "\\|").replace("\n", " ")


def inventory_table(part: ServicePart, name: str) -> str:
    """Draw one service's rows of one inventory table."""
    columns = _COLUMNS[name]
    rows = part.supervisor.inventory.drawn(name)
    return table(columns, [[row.name, *(row.facts[column] for column in columns[1:])] for row in rows])


def _inventory_page(title: str, name: str, parts: list[ServicePart], more: str | None = None) -> str:
    sections = []
    for part in parts:
        drawn = [inventory_table(part, each) for each in (name, more) if each and _has(part, each)]
        sections.append(f"## {_service(part)}\n\n" + ("\n\n".join(drawn) if drawn else "None."))
    return f"{NOTE}\n# {title}\n\n" + "\n\n".join(sections) + "\n"


def _has(part: ServicePart, name: str) -> bool:
    return bool(part.supervisor.inventory.declared(name))


def _metrics_page(parts: list[ServicePart]) -> str:
    families: dict[str, list[tuple[str, MetricFamily]]] = {}
    for part in parts:
        for family in part.supervisor.inventory.metrics.families():
            families.setdefault(family.name, []).append((_service(part), family))
    rows = [_metric_row(name, families[name]) for name in sorted(families)]
    text = "Every series also has the label `service`."
    return f"{NOTE}\n# Metrics\n\n{text}\n\n" + table(("name", "kind", "labels", "services", "what"), rows) + "\n"


def _metric_row(name: str, declared: list[tuple[str, MetricFamily]]) -> list[str]:
    labels = sorted({label for _, family in declared for label in family.label_names})
    services = ", ".join(service for service, _ in declared)
    text = next((family.help for _, family in declared if family.help), "")
    return [f"`{name}`", declared[0][1].kind, ", ".join(labels), services, text]


def _errors_page() -> str:
    rows = [
        [f"`{kind.__name__}`", f"`{kind.code}`", kind.status, may_succeed_later(kind), f"`{kind.metric}`", kind.title()]
        for kind in taxonomy()[1:]
    ]
    columns = ("error", "code", "status", "retry", "metric", "when")
    text = "The status is the usual one; an instance may carry another where the code has several."
    return f"{NOTE}\n# Errors\n\n{text}\n\n" + table(columns, rows) + "\n"


def _routes_page(parts: list[ServicePart]) -> str:
    sections = []
    for part in parts:
        rows = [
            [route.method, f"`{route.path}`", "no" if route.open else "yes", route.summary]
            for route in (*part.routes, *(part.listener.own_routes if part.listener else ()))
        ]
        drawn = table(("method", "path", "needs a capability", "what it does"), rows)
        sections.append(f"## {_service(part)}\n\n{drawn}")
    return f"{NOTE}\n# Routes\n\n" + "\n\n".join(sections) + "\n"
