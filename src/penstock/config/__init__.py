"""Configuration: one schema as data, loading with precedence, faults all at once, reload in one step.

kinds       what one value may be: durations, sizes, addresses, ...
schema      keys in tables, rules between keys
tables      the node's own tables; `listener` has the keys every listener shares
sources     file, environment, flags and --set brought to one form (`toml_lines` finds a key's line)
decode      a raw value to a checked one
build       precedence, inheritance, defaults, rules: pure
settings    the immutable result: typed access, provenance, digest, difference
load        the one place that reads files
reload      swaps a new snapshot in
document    the generated reference page
faults      what is wrong, and where
"""

from __future__ import annotations

from penstock.config.document import docs_page, docs_table
from penstock.config.faults import (
    ConfigFaults,
    Fault,
    Layer,
    ValueOrigin,
)
from penstock.config.kinds import (
    BadValue,
    HostPort,
    Kind,
    Secret,
)
from penstock.config.listener import ListenerSettings, listener_settings, listener_table, service_table
from penstock.config.load import load
from penstock.config.reload import Reloaded, Reloader, ReloadState
from penstock.config.schema import (
    Apply,
    Derived,
    Key,
    KeyRule,
    Schema,
    Table,
)
from penstock.config.settings import (
    SettingChange,
    SettingRow,
    Settings,
    diff,
)
from penstock.config.sources import CommandFlag, Sources, env_name
from penstock.config.tables import channel_key, node_schema, oap_key, service_drain

__all__ = [
    "Apply",
    "BadValue",
    "CommandFlag",
    "ConfigFaults",
    "Derived",
    "Fault",
    "HostPort",
    "Key",
    "KeyRule",
    "Kind",
    "Layer",
    "ListenerSettings",
    "ReloadState",
    "Reloaded",
    "Reloader",
    "Schema",
    "Secret",
    "SettingChange",
    "SettingRow",
    "Settings",
    "Sources",
    "Table",
    "ValueOrigin",
    "channel_key",
    "diff",
    "docs_page",
    "docs_table",
    "env_name",
    "listener_settings",
    "listener_table",
    "load",
    "node_schema",
    "oap_key",
    "service_drain",
    "service_table",
]
