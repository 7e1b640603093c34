"""In every service what takes work in starts after what does the work: nothing is admitted that nobody handles."""

from __future__ import annotations

import pytest

from penstock.config import Sources, load
from penstock.kernel.child import Drain
from penstock.node.build import Node
from penstock.node.services import SERVICE_NAMES, schema


def orders() -> dict[str, list[tuple[str, Drain]]]:
    """List the children of every service in their start order, without starting any."""
    sources = Sources(sets=tuple(f"node.{name}=true" for name in SERVICE_NAMES))
    node = Node(load(schema(), sources), sources, token="psp1_not-a-real-token")
    node.forget()
    return {part.supervisor.service: [(spec.name, spec.drain) for spec in part.supervisor.specs] for part in node.parts}


ORDERS = orders()


@pytest.mark.parametrize("service", ORDERS)
def test_whoever_finishes_admitted_work_starts_before_any_listener(service: str) -> None:
    children = ORDERS[service]
    first = next((place for place, (_, drain) in enumerate(children) if drain is Drain.STOP_INTAKE), len(children))

    assert first < len(children), "it takes no work in"
    assert [name for name, drain in children[first:] if drain is Drain.FINISH] == []
