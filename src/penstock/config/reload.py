"""Reload: build a new snapshot, check it, swap it in one step; an invalid one keeps the old."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.config.build import Picked
from penstock.config.faults import ConfigFaults
from penstock.config.load import SourcesReading
from penstock.config.schema import Schema
from penstock.config.settings import SettingChange, Settings, diff
from penstock.config.sources import Sources
from penstock.kernel.inventory import Inventory
from penstock.kernel.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What a reload did: the settings now in force, what changed, and what waits for a restart; all redacted."""

    settings: Settings
    changed: tuple[SettingChange, ...]
    held: tuple[SettingChange, ...]


@dataclass(frozen=True, slots=True)
class ReloadState:
    """How the settings in force stand to their sources, as far as the last reload tells."""

    # Reloads that were tried since the start; whoever looks again when it changes misses nothing.
    count: int = 0
    # Changes that wait for a restart.
    held: tuple[SettingChange, ...] = ()
    # What could not be applied, and keeps its old state.
    failed: tuple[str, ...] = ()
    # What was wrong with the configuration, if the last reload refused it.
    faults: tuple[str, ...] = ()


class Reloader:
    """The only writer of the settings snapshot. Whoever must act on a change follows `watch`."""

    def __init__(
        self,
        schema: Schema,
        sources: Sources,
        snapshot: Snapshot[Settings],
        inventory: Inventory,
    ) -> None:
        """Take the sources to read again and the snapshot to swap."""
        self._schema = schema
        self._sources = sources
        self._snapshot = snapshot
        self._clock = inventory.clock
        metrics = inventory.metrics
        self._reloads = metrics.counter("config_reloads_total", "Reloads that were swapped in.")
        self._errors = metrics.counter("config_reload_errors_total", "Reloads refused; the old settings stayed.")
        self._duration = metrics.histogram("config_reload_duration_seconds", "From reading to swapping.")
        self.watch = inventory.watch(
            "config", snapshot.value, producers="Reloader", consumers="whoever acts on a changed setting"
        )

    def reload(self) -> Reloaded:
        """Swap in what the sources say now; raises ConfigFaults and changes nothing when that is not valid.

        One synchronous step: no reader sees half of it, and two reloads cannot interleave.
        """
        started = self._clock.monotonic()
        try:
            reloaded = self._candidate(self._snapshot.value)
        except ConfigFaults:
            self._errors.value += 1
            raise
        self._reloads.value += 1
        if reloaded.changed:
            self._snapshot.swap(reloaded.settings)
            self.watch.set(reloaded.settings)
        self._duration.observe(self._clock.monotonic() - started)
        return reloaded

    def _candidate(self, old: Settings) -> Reloaded:
        reading = SourcesReading(self._sources)
        wanted = reading.build(self._schema)
        held = tuple(change for change in diff(old, wanted) if self._schema.keys[change.key].restart)
        if not held:
            return Reloaded(wanted, diff(old, wanted), ())
        # Built again with the old values pinned, so that what is computed from them, and the rules, agree with them.
        pins = {change.key: Picked(old[change.key], old.provenance(change.key)) for change in held}
        settings = reading.build(self._schema, pins)
        return Reloaded(settings, diff(old, settings), held)
