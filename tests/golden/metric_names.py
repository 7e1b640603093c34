"""The metrics of a full node, as a table that is committed: dashboards and alerts of others are written by them.

`python -m tests.golden.metric_names` writes the table anew. A name that goes, or changes its kind or labels, breaks
somebody's dashboard: do it knowingly, and say so in `changes/`.
"""

from __future__ import annotations

from pathlib import Path

from penstock.config import Sources, load
from penstock.node.build import Node
from penstock.node.services import SERVICE_NAMES, schema

GOLDEN = Path(__file__).parent / "metric_names.txt"


def declared() -> dict[str, str]:
    """Return every metric of a node with all services, with its kind, labels and services; nothing is started."""
    sources = Sources(sets=tuple(f"node.{name}=true" for name in SERVICE_NAMES))
    node = Node(load(schema(), sources), sources, token="psp1_not-a-real-token")
    node.forget()
    found: dict[str, tuple[str, set[str], list[str]]] = {}
    for part in node.parts:
        for family in part.supervisor.inventory.metrics.families():
            _, labels, services = found.setdefault(family.name, (family.kind, set(), []))
            labels.update(family.label_names)
            services.append(part.supervisor.service)
    return {
        name: f"{kind} ({', '.join(sorted(labels))}) {', '.join(sorted(services))}"
        for name, (kind, labels, services) in found.items()
    }


def committed() -> dict[str, str]:
    """Read the table."""
    rows = (line.partition(" ") for line in GOLDEN.read_text(encoding="ascii").splitlines())
    return {name: facts for name, _, facts in rows}


def changes(golden: dict[str, str], found: dict[str, str]) -> list[str]:
    """Name the metrics that vanished, and those that have lost a kind, a label or a service."""
    lost = [f"{name} vanished" for name in golden if name not in found]
    return lost + [
        f"{name}: was {facts}, is {found[name]}"
        for name, facts in golden.items()
        if name in found and not _keeps(facts, found[name])
    ]


def _keeps(before: str, after: str) -> bool:
    """Tell whether all that was said of a metric still holds; a new label would split series that are added up."""
    kind, _, rest = before.partition(" (")
    labels, _, services = rest.partition(") ")
    now_kind, _, now_rest = after.partition(" (")
    now_labels, _, now_services = now_rest.partition(") ")
    return (kind, labels) == (now_kind, now_labels) and set(services.split(", ")) <= set(now_services.split(", "))


if __name__ == "__main__":
    GOLDEN.write_text("".join(f"{name} {facts}\n" for name, facts in sorted(declared().items())), encoding="ascii")
