"""Reload: all or nothing, in one step, told to whoever listens; what needs a restart waits for one."""

from __future__ import annotations

import pytest

from penstock.config.faults import ConfigFaults
from penstock.config.load import load
from penstock.config.reload import Reloader
from penstock.config.sources import Sources
from penstock.kernel.inventory import Inventory
from penstock.kernel.snapshot import Snapshot
from tests.config.samples import SCHEMA


class TickingClock:
    """A clock on which every reading is a second later."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        self.now += 1.0
        return self.now

    def wall(self):
        return self.now


class Node:
    """A file, the snapshot made from it and its reloader."""

    def __init__(self, tmp_path, toml="[gate]\nconns = 10\n"):
        self.file = tmp_path / "node.toml"
        self.file.write_text(toml)
        sources = Sources(file=self.file)
        self.inventory = Inventory("node", TickingClock())
        self.snapshot = Snapshot(load(SCHEMA, sources))
        self.reloader = Reloader(SCHEMA, sources, self.snapshot, self.inventory)

    def reload(self, toml):
        self.file.write_text(toml)
        return self.reloader.reload()

    def count(self, name):
        return self.inventory.metrics.value(name)


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_a_valid_change_is_swapped_in_and_told(node):
    reloaded = node.reload("[gate]\nconns = 20\n")

    assert node.snapshot.value["gate.conns"] == 20
    assert [str(change) for change in reloaded.changed] == ["gate.conns: 10 -> 20", "gate.per_peer: 2 -> 5"]
    assert node.count("config_reloads_total") == 1
    assert node.count("config_reload_duration_seconds") == 1


def test_an_invalid_one_keeps_the_old_and_counts_an_error(node):
    old = node.snapshot.value
    with pytest.raises(ConfigFaults):
        node.reload("[gate]\nconns = 20\nmode = 'best'\n")

    assert node.snapshot.value is old
    assert node.reloader.watch.version == 0
    assert node.count("config_reloads_total") == 0
    assert node.count("config_reload_errors_total") == 1


def test_a_file_that_went_away_keeps_the_old(node):
    node.file.unlink()
    with pytest.raises(ConfigFaults):
        node.reloader.reload()

    assert node.snapshot.value["gate.conns"] == 10


def test_keys_that_need_a_restart_are_named_and_keep_their_value_with_all_that_follows_from_it(node):
    reloaded = node.reload("[gate]\nconns = 20\nslots = 32\ndir = '/new'\n")

    assert [change.key for change in reloaded.held] == ["gate.dir", "gate.slots"]
    assert node.snapshot.value["gate.slots"] == 8
    assert node.snapshot.value["gate.per_slot"] == 8
    assert node.snapshot.value["gate.conns"] == 20
    assert str(node.snapshot.value.provenance("gate.slots")) == "default"


def test_a_held_key_is_named_at_every_reload_until_the_restart(node):
    node.reload("[gate]\nslots = 32\n")

    assert [change.key for change in node.reloader.reload().held] == ["gate.slots"]


def test_a_reload_without_a_change_wakes_nobody(node):
    reloaded = node.reloader.reload()

    assert reloaded.changed == ()
    assert node.reloader.watch.version == 0


def test_a_changed_secret_is_a_change_but_never_shown(tmp_path):
    node = Node(tmp_path, "[gate.hook]\nsecret = 'alpha'\n")
    reloaded = node.reload("[gate.hook]\nsecret = 'beta'\n")

    assert [str(change) for change in reloaded.changed] == ["gate.hook.secret: (redacted) -> (redacted)"]
    assert node.snapshot.value.secret("gate.hook.secret").reveal() == "beta"
    assert "beta" not in repr(reloaded)


async def test_whoever_watches_gets_the_new_settings(tmp_path):
    node = Node(tmp_path)
    receiver = node.reloader.watch.subscribe()
    node.reload("[gate]\nconns = 30\n")

    assert (await receiver.changed())["gate.conns"] == 30


def test_a_reader_holds_one_whole_snapshot_while_another_is_swapped_in(node):
    held = node.snapshot.value
    node.reload("[gate]\nconns = 40\nmode = 'fast'\n")

    assert (held["gate.conns"], held["gate.mode"]) == (10, "fair")
    assert (node.snapshot.value["gate.conns"], node.snapshot.value["gate.mode"]) == (40, "fast")
