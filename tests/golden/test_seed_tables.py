"""What the founding documents declare is what a built service declares; what is not built yet is owed, and counted."""

from __future__ import annotations

import re

import pytest

from penstock.config import Sources, load
from penstock.kernel.inventory import Inventory
from penstock.kernel.lock import HIERARCHY
from penstock.node.build import Node
from penstock.node.services import SERVICE_NAMES, schema
from tests.golden.seed_tables import OWED, SEED_CHANNELS, SEED_LOCKS, SeedChannel

SEEDED = sorted({row.service for row in SEED_CHANNELS})


def built() -> dict[str, Inventory]:
    """Build a node with every service this build knows, without starting it."""
    sources = Sources(sets=tuple(f"node.{name}=true" for name in SERVICE_NAMES))
    node = Node(load(schema(), sources), sources, token="psp1_not-a-real-token")
    node.forget()
    return {part.supervisor.service: part.supervisor.inventory for part in node.parts}


def differences(rows: tuple[SeedChannel, ...], inventories: dict[str, Inventory]) -> list[str]:
    """Compare the rows of built services with what they declare."""
    found = []
    for row in rows:
        inventory = inventories.get(row.service)
        if inventory is not None:
            found += _compare(row, inventory)
    return found


def _compare(row: SeedChannel, inventory: Inventory) -> list[str]:
    pattern = re.sub(r"\\\[\w+\\\]", r"\\[\\d+\\]", re.escape(row.name))
    table = "limits" if row.kind == "limiter" else "channels"
    live = [each for each in inventory.declared(table) if re.fullmatch(pattern, each.name)]
    if row.kind == "gauge":
        return []
    if not live:
        return [f"{row.service}: {row.name} is not declared"]
    wanted = {"kind": row.kind, "full": row.full, "capacity": row.capacity}
    return [
        f"{row.service}: {each.name} {fact} is {each.facts[fact]}, the document says {value}"
        for each in live
        for fact, value in wanted.items()
        if value is not None and fact in each.facts and each.facts[fact] != value
    ]


def test_every_built_service_declares_its_documents_channels(record_property: pytest.RecordProperty) -> None:
    inventories = built()
    owed = sorted({row.service for row in SEED_CHANNELS} - set(inventories))
    record_property("owed_rows", sum(row.service in owed for row in SEED_CHANNELS))

    assert differences(SEED_CHANNELS, inventories) == []
    assert owed == sorted(OWED), "a service came or went: say so in OWED"


def test_a_row_of_every_document_is_held() -> None:
    assert SEEDED == ["omnigate", "svc-dht", "svc-interop", "svc-mailbox", "svc-passport"]
    assert len(SEED_CHANNELS) == 23


def test_a_wrong_capacity_policy_or_missing_channel_is_told() -> None:
    planted = (
        SeedChannel("svc-echo", "work", "mpsc", 511, "refuse"),
        SeedChannel("svc-echo", "work", "mpsc", 512, "drop_oldest"),
        SeedChannel("svc-echo", "lost", "mpsc", 512, "refuse"),
    )

    assert len(differences(planted, built())) == len(planted)


def test_every_live_channel_names_both_its_ends() -> None:
    anonymous = [
        f"{service}: {row.name}"
        for service, inventory in built().items()
        for row in inventory.declared("channels")
        if not (row.facts["producers"] and row.facts["consumers"])
    ]

    assert anonymous == []


@pytest.mark.parametrize(("service", "locks"), SEED_LOCKS.items())
def test_lock_ranks_follow_the_documents_hierarchies(service: str, locks: tuple[str, str, str]) -> None:
    ranks = [HIERARCHY[name] for name in locks]

    assert ranks == sorted(ranks), service
    assert len(set(ranks)) == len(ranks), service
