"""The pictures of every service show every channel from its producers to its consumers, and every end."""

from __future__ import annotations

import re

import pytest

from penstock.config import Sources, load
from penstock.node.build import Node
from penstock.node.concurrency import arrows, concurrency_page
from penstock.node.part import ServicePart
from penstock.node.services import SERVICE_NAMES, schema

# The arrows of the founding documents, by the names the children have here: producer, channel, consumer.
FOUNDING = {
    "omnigate": {
        ("listener", "work", "worker_pool"),
        ("supervisor", "events", "readiness"),
        ("config_watcher", "cfg", "listener"),
    },
    "svc-mailbox": {("listener", "work[n]", "shard_worker"), ("visibility_scanner", "requeue[n]", "shard_worker")},
    "svc-passport": {
        ("listener", "issue", "issuance"),
        ("listener", "revoke", "revocation_worker"),
        ("registry_sync", "policy", "bus_subscriber"),
        ("revocation_worker", "policy", "bus_subscriber"),
    },
}  # fmt: skip


def parts() -> dict[str, ServicePart]:
    """Build a node with every service, without starting it."""
    sources = Sources(sets=tuple(f"node.{name}=true" for name in SERVICE_NAMES))
    node = Node(load(schema(), sources), sources, token="psp1_not-a-real-token")
    node.forget()
    return {part.supervisor.service: part for part in node.parts}


PARTS = parts()


def edges(page: str) -> set[tuple[str, str, str]]:
    """Read the arrows of a page back: from, what, to."""
    drawn = re.findall(r'^  (\w+) -->\|"?(?:\w+:)?([^"(|]+)(?:\(\w+\))?"?\| (\w+)$', page, flags=re.MULTILINE)
    return {(start, what, end) for start, what, end in drawn}


@pytest.mark.parametrize("service", PARTS)
def test_every_declared_channel_is_drawn_with_both_its_ends(service: str) -> None:
    part = PARTS[service]
    page = edges(concurrency_page(part, {}))
    names = {re.sub(r"\[\d+\]", "[n]", row.name) for row in part.supervisor.inventory.declared("channels")}
    whole = {name for name in names if name.partition(".")[0] not in names - {name}}

    assert {what for _, what, _ in page} == whole | {"spawn"}
    for arrow in arrows(part):
        assert (_id(arrow.producer), arrow.name, _id(arrow.consumer)) in page


@pytest.mark.parametrize("service", PARTS)
def test_every_child_is_spawned_told_of_the_shutdown_ended_and_aborted(service: str) -> None:
    part = PARTS[service]
    page = concurrency_page(part, {})
    drawn = edges(page)

    for spec in part.supervisor.specs:
        name = _id(spec.name)
        assert ("supervisor", "spawn", name) in drawn
        assert ("supervisor", "shutdown", name) in drawn
        assert f"  {name}-->>S: " in page
        assert f"    S->>{name}: abort" in page


@pytest.mark.parametrize("service", FOUNDING)
def test_the_arrows_of_the_founding_documents_are_there(service: str) -> None:
    assert FOUNDING[service] <= edges(concurrency_page(PARTS[service], {}))


@pytest.mark.parametrize("service", PARTS)
def test_every_name_in_an_arrow_is_a_box(service: str) -> None:
    page = concurrency_page(PARTS[service], {})
    boxes = set(re.findall(r"^  (\w+)(?:\[|\(\[)", page, flags=re.MULTILINE))

    assert {end for start, _, stop in edges(page) for end in (start, stop)} <= boxes


def _id(name: str) -> str:
    return re.sub(r"\W", "_", name)
