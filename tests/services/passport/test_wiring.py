"""What the founding document declares is what the service declares, and its description is complete."""

from __future__ import annotations

from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from penstock.services.passport.service import SERVICE, PassportService
from tests.golden.seed_tables import SEED_CHANNELS
from tests.services.passport.kit import options


def declared(tmp_path=None) -> Inventory:
    inventory = Inventory(SERVICE)
    service = PassportService(inventory, options(tmp_path))
    inventory.watch("shutdown", False, producers="supervisor", consumers="all")
    assert [spec.name for spec in service.children()][-1] == "listener"
    return inventory


def test_channels_have_the_capacities_and_policies_of_the_founding_document():
    rows = {row.name: row.facts for row in declared().declared("channels")}
    wanted = [row for row in SEED_CHANNELS if row.service == SERVICE and row.kind != "gauge"]

    assert len(wanted) == 4
    for row in wanted:
        assert (rows[row.name]["kind"], rows[row.name]["capacity"], rows[row.name]["full"]) == (
            row.kind,
            row.capacity,
            row.full,
        )


def test_every_channel_names_both_its_ends():
    rows = declared().declared("channels")

    assert all(row.facts["producers"] and row.facts["consumers"] for row in rows)


def test_declaring_the_service_touches_no_file(tmp_path):
    declared(tmp_path)

    assert list(tmp_path.rglob("*")) == []


def test_children_are_those_of_the_founding_document():
    inventory = Inventory(SERVICE)
    service = PassportService(inventory, options())
    supervisor = Supervisor(inventory, service.children(), service.supervision())
    names = {spec.name for spec in supervisor.specs}

    assert {"listener", "issuance", "revocation_worker", "bus_subscriber", "registry_sync", "config_watcher"} <= names
