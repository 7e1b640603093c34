"""One page a service: its concurrency model as tables and pictures, with the date somebody last reviewed it."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.kernel.child import Drain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.kernel.child import ChildSpec
    from penstock.node.part import ServicePart

REVIEW_DAYS_MAX = 90
_TABLES = ("channels", "tasks", "locks", "limits", "timeouts")


@dataclass(frozen=True, slots=True)
class Review:
    """Who last looked at a service's model, when, and at which inventory."""

    owner: str
    last_reviewed: str
    digest: str


def inventory_digest(part: ServicePart) -> str:
    """Fingerprint what a service declares; it moves when a channel, task, lock, limit or timeout does."""
    inventory = part.supervisor.inventory
    facts = {name: [[row.name, row.facts] for row in inventory.declared(name)] for name in _TABLES}
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def concurrency_page(part: ServicePart, reviews: dict[str, Review]) -> str:
    """Write the page."""
    from penstock.node.tables import NOTE, inventory_table  # noqa: PLC0415 - the two modules draw for each other

    service = part.supervisor.service
    review = reviews.get(service, Review("unowned", "never", ""))
    front = (
        f"---\nowner: {review.owner}\npython: '>=3.11'\nlast-reviewed: {review.last_reviewed}\n"
        f"inventory-digest: {inventory_digest(part)}\n---\n"
    )
    inventory = part.supervisor.inventory
    drawn = [f"## {name.capitalize()}\n\n{inventory_table(part, name)}" for name in _TABLES if inventory.declared(name)]
    pictures = [_topology(part), _shutdown(part)]
    return f"{front}{NOTE}\n# Concurrency of {service}\n\n" + "\n\n".join([*drawn, *pictures]) + "\n"


def _topology(part: ServicePart) -> str:
    specs = part.supervisor.specs
    lines = ["flowchart LR", "  SUP[supervisor]"]
    lines += [f"  {_id(spec.name)}[{_label(spec)}]" for spec in specs]
    lines += [f"  SUP -->|spawn| {_id(spec.name)}" for spec in specs]
    sentences = [f"The supervisor runs {_and(_label(spec) for spec in specs)}."]
    names = {spec.name for spec in specs}
    for row in part.supervisor.inventory.declared("channels"):
        ends = (str(row.facts["producers"]), str(row.facts["consumers"]))
        if names.issuperset(ends):
            lines.append(
                f'  {_id(ends[0])} -->|"{row.facts["kind"]}:{row.name}({row.facts["capacity"]})"| {_id(ends[1])}'
            )
            sentences.append(f"{ends[0]} feeds {ends[1]} through {row.name} ({row.facts['capacity']}).")
    return "## Topology\n\n```mermaid\n" + "\n".join(lines) + "\n```\n\n**Text:** " + " ".join(sentences)


def _shutdown(part: ServicePart) -> str:
    intake = [spec for spec in part.supervisor.specs if spec.drain is Drain.STOP_INTAKE]
    rest = [spec for spec in reversed(part.supervisor.specs) if spec.drain is not Drain.STOP_INTAKE]
    lines = ["sequenceDiagram", "  participant S as supervisor"]
    lines += [f"  participant {_id(spec.name)} as {spec.name}" for spec in (*intake, *rest)]
    for spec in intake:
        lines += [f"  S->>{_id(spec.name)}: stop intake", f"  {_id(spec.name)}-->>S: admitted requests answered"]
    for spec in rest:
        lines += [f"  S->>{_id(spec.name)}: {_farewell(spec)}", f"  {_id(spec.name)}-->>S: ended"]
    lines += [f"  S->>{_id(spec.name)}: close" for spec in intake]
    deadline_s = part.supervisor.options.drain_deadline_s
    order = _and([*(f"{spec.name} stops intake" for spec in intake), *(f"{s.name} ends" for s in rest)])
    closing = f" {_and(spec.name for spec in intake)} closes last." if intake else ""
    text = f"On shutdown {order}, in this order.{closing} What is left after {deadline_s:g} s is aborted and counted."
    return "## Shutdown\n\n```mermaid\n" + "\n".join(lines) + "\n```\n\n**Text:** " + text


def _farewell(spec: ChildSpec) -> str:
    return "close its channels, finish" if spec.drain is Drain.FINISH else "halt"


def _label(spec: ChildSpec) -> str:
    return spec.name if spec.instances == 1 else f"{spec.name} x{spec.instances}"


def _id(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _and(words: Iterable[str]) -> str:
    items = list(words)
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1] if items else "nothing"
