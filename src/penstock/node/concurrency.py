"""The generated page of a service: its concurrency model as tables and diagrams, with the date of the last review."""

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
    """Who last reviewed a service's model, when, and at which inventory."""

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


@dataclass(frozen=True, slots=True)
class Arrow:
    """One channel from one end to another, as the picture draws it."""

    producer: str
    consumer: str
    kind: str
    name: str
    capacity: object


def arrows(part: ServicePart) -> list[Arrow]:
    """List every way from a producer to a consumer, once for all channels of one family."""
    rows = part.supervisor.inventory.declared("channels")
    declared, drawn = {row.name for row in rows}, dict[Arrow, None]()
    for row in rows:
        if row.name.partition(".")[0] in declared - {row.name}:
            # A part of another queue, such as the class queues of `work`.
            continue
        name = re.sub(r"\[\d+\]", "[n]", row.name)
        for producer in _ends(part, row.facts["producers"]):
            for consumer in _ends(part, row.facts["consumers"]):
                drawn[Arrow(producer, consumer, str(row.facts["kind"]), name, row.facts["capacity"])] = None
    return list(drawn)


def _ends(part: ServicePart, said: object) -> list[str]:
    """Name the ends of a channel: children, the supervisor, or somebody outside of this service."""
    words = [word.strip() for word in str(said).split(",")]
    children = [spec.name for spec in part.supervisor.specs]
    return [name for word in words for name in (children if word == "all" else [word])]


def _topology(part: ServicePart) -> str:
    specs = part.supervisor.specs
    lines = ["flowchart LR", "  supervisor[supervisor]"]
    lines += [f"  {_id(spec.name)}[{_label(spec)}]" for spec in specs]
    found = arrows(part)
    inside = {"supervisor", *(spec.name for spec in specs)}
    outside = dict.fromkeys(end for arrow in found for end in (arrow.producer, arrow.consumer) if end not in inside)
    lines += [f"  {_id(end)}([{end}])" for end in outside]
    lines += [f"  supervisor -->|spawn| {_id(spec.name)}" for spec in specs]
    lines += [_drawn(arrow) for arrow in found]
    sentences = [f"The supervisor runs {_and(_label(spec) for spec in specs)}."]
    sentences += [_told(arrow) for arrow in found if arrow.name != "shutdown"]
    sentences.append("The shutdown watch of the supervisor tells all of them to end.")
    return "## Topology\n\n```mermaid\n" + "\n".join(lines) + "\n```\n\n**Text:** " + " ".join(sentences)


def _drawn(arrow: Arrow) -> str:
    return f'  {_id(arrow.producer)} -->|"{arrow.kind}:{arrow.name}({arrow.capacity})"| {_id(arrow.consumer)}'


def _told(arrow: Arrow) -> str:
    return f"{arrow.producer} feeds {arrow.consumer} through {arrow.name} ({arrow.capacity})."


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
    lines += [f"  alt after {deadline_s:g} s"]
    lines += [f"    S->>{_id(spec.name)}: abort" for spec in (*intake, *rest)]
    lines += ["  end"]
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
